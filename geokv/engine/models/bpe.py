"""``tokenizer.json`` from a GGUF's own vocabulary and merges (byte-level BPE, as GPT-2's)."""

from __future__ import annotations

from typing import Any

from geokv.errors import EngineError

_CONTROL = 3
_PRE = "smollm"


def tokenizer_json(fields: dict[str, Any]) -> str:
    """The tokenizer of a GGUF's metadata.

    ``tokenizer.ggml.pre: smollm`` is SmolLM's pre-tokenizer: every digit is cut out by itself,
    then GPT-2's pattern splits the rest (llama.cpp: ``LLAMA_VOCAB_PRE_TYPE_SMOLLM``; SmolLM2's
    own tokenizer.json says the same). transformers 5 reads the GGUF without the first step,
    which shows where several spaces stand before a digit.

    Args:
        fields: ``tokenizer.ggml.*`` as ``gguf`` reads them.

    Raises:
        EngineError: another kind of tokenizer.
    """
    # Imported here: whoever lists the catalogue must not pay for it.
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind, pre = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if (kind, pre) != ("gpt2", _PRE):
        raise EngineError(
            f"a GGUF tokenizer of kind {kind!r} with pre-tokenizer {pre!r} is not read",
            f"geokv reads 'gpt2' with {_PRE!r}",
        )
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    backend.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, of in zip(tokens, kinds, strict=True)
            if of == _CONTROL
        ]
    )
    return str(backend.to_str(pretty=False))

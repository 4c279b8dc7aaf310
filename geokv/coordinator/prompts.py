"""Every prompt of a run as token ids, whatever kind of workload it is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

from geokv.errors import ConfigError
from geokv.scenario import Scenario
from geokv.scenario.prompts import question as question_tokens
from geokv.scenario.prompts import shared_prefix, trace_block, working_order, working_prefix
from geokv.scenario.workload import Document, SharedPrefix, Stream, TextFile, Trace, WorkingSet

if TYPE_CHECKING:
    from geokv.engine.tokenizer import Tokenizer

CONTENT_VOCAB = 256
"""Drawn prompts are of the first ids, which every supported tokenizer has as plain content."""

_PREPARING = 2**31
_PREPARING_QUESTION = "What is this text about?"


class Prompts(Protocol):
    """What a cell asks.

    Attributes:
        prefix: what every prompt begins with; only whole chunks of it can be shared.
        longest: tokens of the longest prompt.
        stop: where an answer ends, beside its length; empty where nothing ends it.
        to_the_end: whether the model's own end of an answer is ignored.
    """

    prefix: list[int]
    longest: int
    stop: tuple[str, ...]
    to_the_end: bool

    def question(self, cell: int, repeat: int, warmup: bool) -> list[int]:
        """The whole prompt of one request, the same in every arm of a cell."""
        ...

    def preparing(self, cell: int, number: int) -> list[int]:
        """A prompt that fills a cache with the prefix and is never asked again."""
        ...

    def foreign(self) -> list[int]:
        """A prompt of another text, at least as many whole chunks as the prefix."""
        ...


class _Drawn:
    """Seeded random ids; nothing ends their answers but the length asked for."""

    stop: tuple[str, ...] = ()
    to_the_end = True

    def __init__(self, workload: SharedPrefix | WorkingSet | Stream, seed: int) -> None:
        self._seed = seed
        self._question_tokens = workload.question_tokens
        self.longest = workload.prefix_tokens + workload.question_tokens

    def foreign(self) -> list[int]:
        return question_tokens(self._seed, 0, 2 * _PREPARING - 1, self.longest, CONTENT_VOCAB)

    def _tail(self, cell: int, number: int, warmup: bool) -> list[int]:
        size = self._question_tokens
        return question_tokens(self._seed, cell, number, size, CONTENT_VOCAB, warmup=warmup)


class DrawnPrompts(_Drawn):
    """A long prefix and a question behind it."""

    def __init__(self, workload: SharedPrefix, seed: int) -> None:
        super().__init__(workload, seed)
        self.prefix = shared_prefix(seed, workload.prefix_tokens, CONTENT_VOCAB)

    def question(self, cell: int, repeat: int, warmup: bool) -> list[int]:
        return self.prefix + self._tail(cell, repeat, warmup)

    def preparing(self, cell: int, number: int) -> list[int]:
        return self.question(cell, number + _PREPARING, True)


class WorkingSetPrompts(_Drawn):
    """Many prefixes, each request behind the next of a fixed order."""

    def __init__(self, workload: WorkingSet, seed: int) -> None:
        super().__init__(workload, seed)
        self._workload = workload
        self._prefixes: dict[int, list[int]] = {}
        asked = workload.warmup + workload.requests
        self.order = working_order(seed, workload.prefixes, asked, workload.order, workload.skew)
        self.prefix = self._prefix(0)

    def question(self, cell: int, repeat: int, warmup: bool) -> list[int]:
        place = repeat if warmup else self._workload.warmup + repeat
        return self._prefix(self.order[place]) + self._tail(cell, repeat, warmup)

    def preparing(self, cell: int, number: int) -> list[int]:
        """Behind prefix ``number``."""
        return self._prefix(number) + self._tail(cell, number + _PREPARING, True)

    def _prefix(self, number: int) -> list[int]:
        if number not in self._prefixes:
            size = self._workload.prefix_tokens
            self._prefixes[number] = working_prefix(self._seed, number, size, CONTENT_VOCAB)
        return self._prefixes[number]


class StreamPrompts(_Drawn):
    """Prefixes of several tenants; each request behind one that is drawn."""

    def __init__(self, workload: Stream, seed: int) -> None:
        super().__init__(workload, seed)
        self._workload = workload
        self._prefixes: dict[int, list[int]] = {}
        self.order = working_order(
            seed, workload.prefixes, workload.requests, workload.order, workload.skew
        )
        self.prefix = self._prefix(0)

    @property
    def prefixes(self) -> int:
        """How many different ones there are, of all tenants."""
        tenants = self._workload.tenants if self._workload.texts == "own" else 1
        return tenants * self._workload.prefixes

    def question(self, cell: int, repeat: int, warmup: bool) -> list[int]:
        """Request ``repeat``; the same in every cell, so that a control is the same drill."""
        return self.behind(self.number(repeat), repeat)

    def behind(self, number: int, repeat: int) -> list[int]:
        """Request ``repeat`` behind prefix ``number``, whichever that is; from ``prefixes`` on
        they are nobody's."""
        return self._prefix(number) + self._tail(0, repeat, False)

    def number(self, repeat: int) -> int:
        """Which prefix request ``repeat`` begins with; as of ``preparing``."""
        number = self.order[repeat]
        if self._workload.texts == "own":
            number += repeat % self._workload.tenants * self._workload.prefixes
        return number

    def preparing(self, cell: int, number: int) -> list[int]:
        """Behind prefix ``number``; those of tenant t begin at t × ``prefixes`` of the workload,
        or at 0 where all have the same."""
        return self._prefix(number) + self._tail(0, number + _PREPARING, True)

    def _prefix(self, number: int) -> list[int]:
        if number not in self._prefixes:
            size = self._workload.prefix_tokens
            self._prefixes[number] = working_prefix(self._seed, number, size, CONTENT_VOCAB)
        return self._prefixes[number]


class TracePrompts:
    """What the lines of a trace ask, made of their blocks.

    Two prompts are equal exactly as far as their ids are equal from the start on. Blocks are
    numbered by what stands before them too, so ids may stand for blocks alone.
    """

    stop: tuple[str, ...] = ()
    to_the_end = True

    def __init__(self, workload: Trace, seed: int) -> None:
        self.prefix: list[int] = []
        self._seed = seed
        self._workload = workload
        self._numbers: dict[tuple[int, int | str], int] = {}
        self._blocks: dict[tuple[int, int], list[int]] = {}
        self.longest = max(workload.prompt_tokens(line) for line in workload.lines)

    def question(self, cell: int, repeat: int, warmup: bool) -> list[int]:
        """Prompt of line ``repeat`` of the file; the same in every cell."""
        line = self._workload.lines[repeat]
        size = line.block_tokens or self._workload.block_tokens
        tokens: list[int] = []
        behind = -1
        for name in line.hash_ids:
            behind = self._number(behind, name)
            tokens += self._block(behind, size)
        if len(tokens) < line.input_length:
            # The file names whole blocks only; the rest is this line's own.
            tokens += self._block(self._number(behind, f"rest of {repeat}"), size)
        return tokens[: self._workload.prompt_tokens(line)]

    def preparing(self, cell: int, number: int) -> list[int]:
        return self.question(cell, number, False)

    def foreign(self) -> list[int]:
        return question_tokens(self._seed, 0, _PREPARING, self.longest, CONTENT_VOCAB)

    def _number(self, behind: int, name: int | str) -> int:
        return self._numbers.setdefault((behind, name), len(self._numbers))

    def _block(self, number: int, size: int) -> list[int]:
        if (number, size) not in self._blocks:
            self._blocks[number, size] = trace_block(self._seed, number, size, CONTENT_VOCAB)
        return self._blocks[number, size]


class DocumentPrompts:
    """A text and questions about it, as the model's tokenizer has them.

    Args:
        chunk_sizes: tokens of a chunk, of the sites that share the text.

    Raises:
        ConfigError: a text shares no whole chunk, or the foreign one is shorter.
    """

    to_the_end = False

    def __init__(
        self, workload: Document, tokenizer: Tokenizer, chunk_sizes: Sequence[int]
    ) -> None:
        self._workload = workload
        self._tokenizer = tokenizer
        # An answer is one line: where the model would go on to ask itself the next question.
        self.stop: tuple[str, ...] = ("\n",) if workload.template == "plain" else ()
        self._questions = [self._prompt(workload.text, text) for text in workload.questions]
        self._preparing = self._prompt(workload.text, _PREPARING_QUESTION)
        every = [*self._questions, self._preparing]
        columns = takewhile(lambda ids: len(set(ids)) == 1, zip(*every, strict=False))
        self.prefix = [ids[0] for ids in columns]
        self.longest = max(len(tokens) for tokens in every)
        for chunk_tokens in dict.fromkeys(chunk_sizes):
            self._check(chunk_tokens)

    def _check(self, chunk_tokens: int) -> None:
        shared = len(self.prefix) // chunk_tokens
        if not shared:
            raise ConfigError(
                f"workload.text: {len(self.prefix)} tokens fill no chunk of {chunk_tokens}",
                "take a longer text, or smaller deployment.chunk_tokens",
            )
        if self._workload.foreign is not None:
            has = len(self.foreign()) // chunk_tokens
            if has < shared:
                raise ConfigError(
                    f"workload.foreign: must have at least the {shared} chunks of "
                    f"{chunk_tokens} tokens that the document has, has {has}"
                )

    def question(self, cell: int, repeat: int, warmup: bool) -> list[int]:
        return self._questions[repeat]

    def preparing(self, cell: int, number: int) -> list[int]:
        return self._preparing

    def foreign(self) -> list[int]:
        assert self._workload.foreign is not None, "the scenario's checks ask for it"
        return self._prompt(self._workload.foreign, _PREPARING_QUESTION)

    def _prompt(self, text: TextFile, question: str) -> list[int]:
        if self._workload.template == "chat":
            content = f"{text.words}\n\nQuestion: {question} Answer in one short sentence."
            return self._tokenizer.chat([{"role": "user", "content": content}])
        return self._tokenizer.encode(f"{text.words}\n\nQuestion: {question}\nAnswer:")


def make_prompts(scenario: Scenario) -> Prompts:
    """The prompts of a scenario.

    Raises:
        ConfigError: texts that are too short for the scenario's chunks.
        EngineError: the model's tokenizer is missing.
    """
    workload = scenario.workload
    if isinstance(workload, SharedPrefix):
        return DrawnPrompts(workload, scenario.seed)
    if isinstance(workload, WorkingSet):
        return WorkingSetPrompts(workload, scenario.seed)
    if isinstance(workload, Stream):
        return StreamPrompts(workload, scenario.seed)
    if isinstance(workload, Trace):
        return TracePrompts(workload, scenario.seed)
    # It comes with torch, which a coordinator that draws its prompts needs not wait for.
    from geokv.engine.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(scenario.deployment.model)
    sites = (workload.provider, workload.asker)
    sizes = [scenario.deployment.at(site).chunk_tokens for site in sites]
    return DocumentPrompts(workload, tokenizer, sizes)

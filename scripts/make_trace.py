"""Make ``scenarios/traces/roaming_chats.jsonl``: conversations whose users move between two sites.

    python scripts/make_trace.py > scenarios/traces/roaming_chats.jsonl

Nothing of it is from anybody's traffic. 40 conversations of two tenants begin at random times
within 8 s. Each stands behind its tenant's system prompt (two blocks), has one to five turns, and
every turn repeats all before it, as chats do. Think times are short so that a run is. After a turn
three in ten users go on at the other site. One conversation in four begins with a document.
"""

from __future__ import annotations

import json
from typing import Any

from geokv.scenario.prompts import stream

SEED = 20261130
SESSIONS = 40
BEGIN_WITHIN_S = 8.0
BLOCK_TOKENS = 256
MOVES = 0.3


def conversation(number: int) -> list[dict[str, Any]]:
    """Lines of one conversation, blocks named by what they are."""
    dice = stream(SEED, "conversation", number)
    tenant = number % 2
    document = dice.random() < 0.25
    blocks = [f"system {tenant} {part}" for part in range(2)]
    blocks += [f"{number} document {part}" for part in range(int(dice.integers(4, 9)) * document)]
    at_s = float(dice.random()) * BEGIN_WITHIN_S
    site = "ab"[int(dice.integers(2))]
    lines = []
    for turn in range(int(dice.integers(1, 6))):
        blocks += [f"{number} turn {turn} {part}" for part in range(int(dice.integers(1, 4)))]
        rest = int(dice.integers(1, BLOCK_TOKENS))
        lines.append(
            {
                "timestamp": round(at_s * 1000),
                "input_length": len(blocks) * BLOCK_TOKENS + rest,
                "output_length": int(dice.integers(2, 9)),
                "blocks": [*blocks, f"{number} rest {turn}"],
                "block_tokens": BLOCK_TOKENS,
                "site": site,
                "tenant": f"tenant-{tenant}",
                "session": number,
                "category": "document" if document else "chat",
            }
        )
        at_s += 0.15 + float(dice.exponential(0.5))
        if dice.random() < MOVES:
            site = "b" if site == "a" else "a"
    return lines


def main() -> None:
    """All conversations in order of time, blocks numbered as they appear."""
    lines = [line for number in range(SESSIONS) for line in conversation(number)]
    ids: dict[str, int] = {}
    for line in sorted(lines, key=lambda line: int(line["timestamp"])):
        names = line.pop("blocks")
        hash_ids = [ids.setdefault(name, len(ids)) for name in names]
        out = {}
        for key, value in line.items():
            out[key] = value
            if key == "output_length":
                out["hash_ids"] = hash_ids
        print(json.dumps(out, separators=(",", ":")))


if __name__ == "__main__":
    main()

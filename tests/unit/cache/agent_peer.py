"""An agent "b" in a process of its own, that holds memory full of 7s until it is killed.

python agent_peer.py tcp|nixl|mooncake BYTES
"""

from __future__ import annotations

import asyncio
import sys

from agent_engines import MAKERS


async def main(kind: str, size: int) -> None:
    agent = await MAKERS[kind]("b")
    memory = memoryview(bytearray(b"\x07") * size)
    agent.register(memory)
    print("blob " + agent.metadata().hex(), flush=True)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))

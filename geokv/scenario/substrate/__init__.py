"""How chunks travel: one file per transport. The next kind makes this a union by ``kind``."""

from geokv.scenario.substrate.tcp import TcpSubstrate

Substrate = TcpSubstrate

__all__ = ["Substrate", "TcpSubstrate"]

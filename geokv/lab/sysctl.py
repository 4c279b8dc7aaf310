"""TCP and forwarding settings of namespaces, written and read back."""

from __future__ import annotations

from pathlib import Path

from geokv.errors import LabError
from geokv.lab.enter import in_netns
from geokv.lab.journal import Journal
from geokv.lab.settings import TcpSettings

_NET = Path("/proc/sys/net")

TCP_MEM_PAGES = (4_000_000, 8_000_000, 16_000_000)
"""Below ``tcp_mem`` the stack never feels pressed; past it the window collapses without a drop."""

_FIRST_NAMESPACE = {
    "ipv4/tcp_mem": TCP_MEM_PAGES,
    "core/netdev_max_backlog": (1_000_000,),
    "core/rmem_max": (2**31 - 1,),
    "core/wmem_max": (2**31 - 1,),
}
"""Machine-wide, so raised, never lowered, and put back afterwards."""


def prepare_namespace(path: str, tcp: TcpSettings | None, *, forward: bool) -> None:
    """Settings of one namespace: no IPv6 chatter, forwarding, TCP buffers.

    Raises:
        LabError: a value reads back differently.
    """
    values: dict[str, tuple[int, ...]] = {"ipv4/conf/all/rp_filter": (0,)}
    values["ipv4/conf/default/rp_filter"] = (0,)
    if (_NET / "ipv6").is_dir():
        values["ipv6/conf/all/disable_ipv6"] = (1,)
        values["ipv6/conf/default/disable_ipv6"] = (1,)
    if forward:
        values["ipv4/ip_forward"] = (1,)
        values["ipv4/conf/all/send_redirects"] = (0,)
    if tcp is not None:
        values |= _tcp_values(tcp)
    with in_netns(path):
        for name, value in values.items():
            _write(name, value)


def read_tcp(path: str) -> TcpSettings:
    """TCP settings of a namespace as the kernel holds them; congestion is its default."""
    with in_netns(path):
        rmem, wmem = _read("ipv4/tcp_rmem"), _read("ipv4/tcp_wmem")
        return TcpSettings(
            congestion=(_NET / "ipv4/tcp_congestion_control").read_text().strip(),
            rmem_bytes=(rmem[0], rmem[1], rmem[2]),
            wmem_bytes=(wmem[0], wmem[1], wmem[2]),
            slow_start_after_idle=_read("ipv4/tcp_slow_start_after_idle")[0],
            no_metrics_save=_read("ipv4/tcp_no_metrics_save")[0],
        )


def raise_machine_limits(journal: Journal) -> dict[int, tuple[Path, str]]:
    """Raise the first namespace's limits where they are too low.

    Returns:
        For ``restore_machine_limits``: by journal entry, the file and its old content.

    Raises:
        LabError: not permitted.
    """
    changed = {}
    for name, wanted in _FIRST_NAMESPACE.items():
        path = _NET / name
        old = _read(name)
        new = tuple(max(pair) for pair in zip(old, wanted, strict=True))
        if new == old:
            continue
        entry = journal.record("sysctl", path=str(path), old=_text(old), new=_text(new))
        changed[entry] = (path, _text(old))
        _write(name, new)
    return changed


def restore_machine_limits(journal: Journal, changed: dict[int, tuple[Path, str]]) -> None:
    """Put the old limits back."""
    for entry, (path, old) in changed.items():
        path.write_text(old)
        journal.done(entry)


def _tcp_values(tcp: TcpSettings) -> dict[str, tuple[int, ...]]:
    return {
        "ipv4/tcp_rmem": tcp.rmem_bytes,
        "ipv4/tcp_wmem": tcp.wmem_bytes,
        "ipv4/tcp_slow_start_after_idle": (tcp.slow_start_after_idle,),
        "ipv4/tcp_no_metrics_save": (tcp.no_metrics_save,),
    }


def _text(values: tuple[int, ...]) -> str:
    return " ".join(str(value) for value in values)


def _read(name: str) -> tuple[int, ...]:
    return tuple(int(word) for word in (_NET / name).read_text().split())


def _write(name: str, values: tuple[int, ...]) -> None:
    try:
        (_NET / name).write_text(_text(values))
    except OSError as error:
        raise LabError(
            f"net/{name} cannot be set ({error.strerror})", "run as root, or with --clock virtual"
        ) from None
    found = _read(name)
    if found != values:
        raise LabError(f"net/{name} asked {_text(values)}, found {_text(found)}")

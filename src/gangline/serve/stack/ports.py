"""Ports of the stack on loopback: the usual one where it is free, and the same one at the next `up`."""

from gangline.errors import CapacityError
from gangline.launch.local.targets import is_free

USUAL = {"s3": 9000, "prometheus": 9090, "grafana": 3000, "service": 8321}
_TRIES = 200


def settle_ports(remembered: dict[str, int], *, kept: set[str]) -> dict[str, int]:
    """A port for every name.

    Args:
        remembered: From the last time; used again where it is free.
        kept: Names whose server runs: their port is theirs.
    """
    settled = {name: remembered[name] for name in kept if name in remembered}
    for name, usual in USUAL.items():
        if name not in settled:
            settled[name] = _free(remembered.get(name, usual), usual, set(settled.values()))
    return settled


def _free(wanted: int, usual: int, taken: set[int]) -> int:
    candidates: list[int] = [wanted, *range(usual, usual + _TRIES)]
    for port in candidates:
        if port not in taken and is_free(port):
            return port
    raise CapacityError(f"wanted a free port from {usual} on, found none among {_TRIES}; stop what holds them")

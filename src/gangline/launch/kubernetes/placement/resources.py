"""Resource quantities (`500m`, `1Gi`) and sums of them, in the scheduler's units: server capacity, pod requests.

`cpu` is in thousandths of a core, memory and disk in bytes, `pods` and devices in pieces; the scheduler rounds up.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.units import format_bytes, format_number

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?|[eE][+-]?\d{1,3})", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_LONGEST = 64
"""Maximum length of a quantity; servers write far shorter ones."""


def parse_quantity(text: str | float) -> Fraction:
    """The exact value of `text`; JSON has small quantities as numbers.

    Raises:
        ConfigError: It is not a quantity.
    """
    written = str(text)
    matched = _FORM.fullmatch(written) if len(written) <= _LONGEST else None
    if matched is None:
        raise ConfigError(f"wanted a quantity as 500m, 2, 1Gi or 1e3, found {written[:_LONGEST]!r}")
    number, suffix = matched.groups()
    if suffix in _BINARY:
        return Fraction(number) * (1 << 10 * _BINARY[suffix])
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    power: int = 10 ** abs(exponent)
    return Fraction(number) * power if exponent >= 0 else Fraction(number) / power


@lru_cache(maxsize=4096)
def to_scheduler_units(resource: str, text: str | float) -> int:
    """`text` in the scheduler's units, rounded up: thousandths of a core for `cpu`, else whole units."""
    value = parse_quantity(text)
    return -((-value * 1000) // 1) if resource == "cpu" else -(-value // 1)


Amounts = Mapping[str, int]

_BYTES = ("memory", "ephemeral-storage", "hugepages-")


def read_amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Amounts of a `requests`, `allocatable` or `hard` field."""
    return {name: to_scheduler_units(name, text) for name, text in (quantities or {}).items()}


def pod_needs(spec: Object) -> dict[str, int]:
    """What the scheduler reserves for a pod: the maximum of its init and run phase, its overhead, and one pod.

    Sidecars (init containers that restart) stay; the others run one by one, each with the sidecars before it.
    """
    stays, start = _total(_requests(each) for each in spec.get("containers", ())), dict[str, int]()
    sidecars: dict[str, int] = {}
    for each in spec.get("initContainers", ()):
        if each.get("restartPolicy") == "Always":
            sidecars = add(sidecars, _requests(each))
        start = _maximum(start, add(sidecars, {} if each.get("restartPolicy") == "Always" else _requests(each)))
    needs = _maximum(add(stays, sidecars), start)
    needs |= read_amounts((spec.get("resources") or {}).get("requests"))
    return add(add(needs, read_amounts(spec.get("overhead"))), {"pods": 1})


def add(left: Amounts, right: Amounts) -> dict[str, int]:
    """Sum by resource."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in left.keys() | right.keys()}


def subtract(left: Amounts, right: Amounts) -> dict[str, int]:
    """Difference by resource; negative if a server has less than is reserved on it."""
    return add(left, {name: -amount for name, amount in right.items()})


def _maximum(left: Amounts, right: Amounts) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left.keys() | right.keys()}


def num_fitting(free: Amounts, need: Amounts) -> int:
    """How many pods that each need `need` fit into `free`."""
    asked = {name: amount for name, amount in need.items() if amount > 0}
    return max(0, min((free.get(name, 0) // amount for name, amount in asked.items()), default=0))


def missing_resources(free: Amounts, need: Amounts) -> tuple[str, ...]:
    """Names of the resources of which `free` has too little for one pod."""
    return tuple(sorted(name for name, amount in need.items() if amount > max(0, free.get(name, 0))))


def as_text(resource: str, amount: int) -> str:
    """`2.5 cpu`, `64 GB memory`, `8 nvidia.com/gpu`."""
    if resource == "cpu":
        return f"{format_number(amount / 1000)} cpu"
    if resource.startswith(_BYTES):
        return f"{format_bytes(amount)} {resource}"
    return f"{amount} {resource}"


def _requests(container: Object) -> dict[str, int]:
    return read_amounts((container.get("resources") or {}).get("requests"))


def _total(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        total = add(total, part)
    return total

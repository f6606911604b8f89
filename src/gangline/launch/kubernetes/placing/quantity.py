"""Amounts as Kubernetes writes them (`500m`, `1Gi`, `1e3`) and as its scheduler counts them: rounded up, whole."""

import re
from fractions import Fraction
from functools import lru_cache

from gangline.errors import ConfigError

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?|[eE][+-]?\d{1,3})", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_LONGEST = 64
"""Characters of a quantity; servers write far fewer."""


def parse_quantity(text: str | float) -> Fraction:
    """The exact value of `text`; JSON has small ones as plain numbers.

    Raises:
        ConfigError: It is no quantity.
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
def count(resource: str, text: str | float) -> int:
    """Units of `resource` that the scheduler counts: thousandths of a core for `cpu`, whole ones of all else."""
    value = parse_quantity(text)
    return -((-value * 1000) // 1) if resource == "cpu" else -(-value // 1)

"""Many server names in one text: `a[001-032,040],b7`, as Slurm writes host lists. Pure text."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

MOST_SERVERS = 1_000_000
"""Servers that one text may name."""
_ITEM = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)?(?:\[([0-9,-]+)\])?([A-Za-z0-9._-]*)")
_SPLIT = re.compile(r",(?![^\[]*\])")
_NUMBERED = re.compile(r"(.*?)(\d+)")


def expand_servers(text: str) -> tuple[str, ...]:
    """Every name, in the order of the text; a range keeps the leading zeros of its first number.

    Raises:
        ValueError: It is not such a text; the message names the wrong part, and what works.
    """
    names = tuple(name for item in _SPLIT.split(text) for name in _expanded(item.strip()))
    if len(names) > MOST_SERVERS:
        raise ValueError(f"at most {MOST_SERVERS:,} servers, found {len(names):,}")
    return names


def _expanded(item: str) -> Iterator[str]:
    match = _ITEM.fullmatch(item)
    if not item or not match or not (match[1] or match[2]):
        raise ValueError(f'server names, "a[001-064]" or "a1,a2", found {item[:40]!r}')
    head, numbers, tail = match[1] or "", match[2], match[3]
    if numbers is None:
        yield item
        return
    for part in numbers.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first + last) > 24:
            raise ValueError(f'numbers or ranges of them, "[001-064,070]", found {part[:40]!r}')
        low, high = int(first), int(last or first)
        if not 0 <= high - low < MOST_SERVERS:
            raise ValueError(f"a range that rises by less than {MOST_SERVERS:,}, found {part[:40]!r}")
        yield from (f"{head}{number:0{len(first)}}{tail}" for number in range(low, high + 1))


def compress_servers(names: Sequence[str]) -> str:
    """The shortest such text that `expand_servers` reads as these names in this order."""
    parts = [_NUMBERED.fullmatch(name) for name in names]
    runs = []
    for head, run in groupby(range(len(names)), lambda at: _run_key(parts[at], at)):
        found = list(run)
        first, last = names[found[0]], names[found[-1]]
        tail = last[len(head[0]) :]
        runs.append(first if len(found) == 1 else f"{head[0]}[{first[len(head[0]) :]}-{tail}]")
    return ",".join(runs)


def _run_key(match: "re.Match[str] | None", at: int) -> tuple[str, int, int]:
    """Equal for neighbours whose numbers follow each other; names without a number stand alone."""
    return (match[1], len(match[2]), int(match[2]) - at) if match else ("", -1, at)

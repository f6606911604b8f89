"""What a part of a session found: figures, each beside its limit, under the conditions they hold for; table and JSON.

A part says beforehand which figures it gives. The file is written again with each of them, so that a part that is
stopped leaves what it had.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    value: float
    unit: str
    """Empty: a ratio."""
    bound: Literal["at most", "at least"]
    limit: float
    source: str
    """Where the limit comes from."""

    @property
    def is_held(self) -> bool:
        return self.value <= self.limit if self.bound == "at most" else self.value >= self.limit


@dataclass(kw_only=True)
class Report:
    part: str
    path: Path
    names: tuple[str, ...]
    """Names of all figures that the part gives."""
    conditions: Mapping[str, Any]
    is_rehearsal: bool = False
    """The device is another one and shapes are small: nothing is judged."""
    figures: list[Figure] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)
    """What the figures were made of."""
    ended: str = "under way"

    def add(self, name: str, value: float, *, at_most: float | None = None, at_least: float | None = None,
            source: str, unit: str = "") -> None:  # fmt: skip
        """One figure and its one limit."""
        if name not in self.names:
            raise KeyError(f"part {self.part} does not say that it gives {name!r}")
        limit = at_least if at_most is None else at_most
        if limit is None or None not in (at_most, at_least):
            raise ValueError(f"{name}: wanted one limit, at_most or at_least")
        bound: Literal["at most", "at least"] = "at least" if at_most is None else "at most"
        self.figures.append(Figure(name=name, value=value, unit=unit, bound=bound, limit=limit, source=source))
        self.write()

    def tell(self, name: str, what: Any) -> None:
        """What no limit is known for."""
        self.seen[name] = what
        self.write()

    @property
    def missing(self) -> list[str]:
        given = {each.name for each in self.figures}
        return [name for name in self.names if name not in given]

    def end(self) -> None:
        self.ended = f"without {', '.join(self.missing)}" if self.missing else "complete"
        self.write()

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        reported = {
            "part": self.part, "ended": self.ended, "rehearsal": self.is_rehearsal, "conditions": dict(self.conditions),
            "figures": [asdict(each) | {"held": None if self.is_rehearsal else each.is_held} for each in self.figures],
            "missing": self.missing, "seen": self.seen,
        }  # fmt: skip
        staged = self.path.with_suffix(".staged")
        staged.write_text(json.dumps(reported, indent=1) + "\n")
        staged.replace(self.path)


def table(reported: Mapping[str, Any]) -> str:
    """Table of one part's file."""
    where = reported["conditions"]
    head = (
        f"{reported['part']}: {reported['ended']}{', a rehearsal: no limit is judged' if reported['rehearsal'] else ''}"
    )
    words = [
        where.get("device"),
        *(f"{name} {where.get(name)}" for name in ("driver", "torch", "python", "cores", "load")),
    ]
    machine = " · ".join(map(str, words))
    rows = [("figure", "value", "", "limit", "", "limit comes from"), *map(_row, reported["figures"])]
    return "\n".join([head, machine, *_aligned(rows)])


def _row(figure: Mapping[str, Any]) -> tuple[str, ...]:
    words = {None: "-", True: "held", False: "MISSED"}
    sign = "<=" if figure["bound"] == "at most" else ">="
    value, limit = (f"{figure[key]:.4g}{' ' * bool(figure['unit'])}{figure['unit']}" for key in ("value", "limit"))
    return figure["name"], value, sign, limit, words[figure["held"]], figure["source"]


def _aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    found = list(rows)
    widths = [max(len(row[column]) for row in found) for column in range(len(found[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in found]

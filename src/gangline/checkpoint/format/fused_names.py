"""Which stored parameters are fused where the model has them split, or split where it has them fused. Pure."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from gangline.errors import ConfigError
from gangline.optim.plan.matrix import FragmentSplit, RowRanges, fragments
from gangline.spec.plan import FusedParameter

MOST_STARS = 4
"""Stars that a name may have: each more multiplies the ways to match it."""
_NUMBER = "{}"
"""Placeholder in the name of a part: the number of a matrix of a stack."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FusedPart:
    """One part and its rows in the fused parameter; of a stack its number there."""

    fragment: str
    """Name that the part has in names of optimizer state: `q`, `expert.7`."""
    name: str
    rows: RowRanges


@dataclass(frozen=True, kw_only=True, slots=True)
class Fusion:
    """One fused parameter and its parts, of which a checkpoint has either."""

    rule: FusedParameter
    fused: str
    names: tuple[str, ...]
    """Names of the parts; for a stack that is stored fused, the pattern of their names."""
    is_stored_fused: bool

    @property
    def stored(self) -> tuple[str, ...]:
        """Names that the checkpoint has."""
        return (self.fused,) if self.is_stored_fused else self.names

    def __str__(self) -> str:
        there = f"{self.fused} ({self.rule.split})"
        return f"{', '.join(self.names)} <- {there}" if self.is_stored_fused else f"{there} <- {', '.join(self.names)}"

    @property
    def is_stack(self) -> bool:
        """Its parts are numbered by the first dim of the fused parameter."""
        return self.rule.split == "stack"

    def parts(self, rows: int) -> tuple[FusedPart, ...]:
        """Parts of a fused parameter of `rows` rows; those of a stack are its matrices.

        Raises:
            ConfigError: The split rule does not fit them.
        """
        rule, names = self.rule, self.names
        found: list[tuple[str, RowRanges]]
        if self.is_stack:
            found = [(f"expert.{at}", ((at, at + 1),)) for at in range(rows)]
            names = tuple(names[0].replace(_NUMBER, str(at)) for at in range(rows)) if self.is_stored_fused else names
        else:
            split = FragmentSplit(kind=rule.split, heads=rule.heads, kv_heads=rule.kv_heads, head_dim=rule.head_dim)
            try:
                matrices = fragments(self.fused, (rows, 1), split)
            except ConfigError as error:
                raise ConfigError(f"{place(rule)}: {error}") from error
            found = [(matrix.fragment, matrix.rows) for matrix in matrices]
        return tuple(
            FusedPart(fragment=fragment, name=name, rows=own)
            for (fragment, own), name in zip(found, names, strict=True)
        )


def place(rule: FusedParameter) -> str:
    """Name of a rule in messages."""
    return f"fused {rule.match!r}"


def fusions(rules: Sequence[FusedParameter], stored: Collection[str], wanted: Collection[str]) -> tuple[Fusion, ...]:
    """What is to be split or joined: parameters that the checkpoint has in the one form and the model does not.

    Args:
        rules: Each for the parameters that it matches.
        stored: Names of parameters in the checkpoint.
        wanted: Of those in the whole model.

    Raises:
        ConfigError: A rule matches nothing, or says something impossible; the checkpoint has some parts alone, or a
            parameter in both forms; two rules claim one parameter.
    """
    found: list[Fusion] = []
    for rule in rules:
        require_sense(rule)
        matched = list(_matched(rule, stored))
        if not matched:
            near = get_close_matches(rule.match, stored, n=2, cutoff=0.6) or sorted(stored)[:3]
            raise ConfigError(
                f"{place(rule)}: neither it nor {', '.join(rule.parts)} matches a parameter of the checkpoint, "
                f"which has {', '.join(near)}"
            )
        found.extend(each for each in matched if not all(name in wanted for name in each.stored))
    claimed: dict[str, Fusion] = {}
    for fusion in found:
        for name in {fusion.fused, *fusion.names}:
            if name in claimed:
                raise ConfigError(f"{name} is claimed by {place(claimed[name].rule)} and by {place(fusion.rule)}")
            claimed[name] = fusion
    return tuple(found)


def require_sense(rule: FusedParameter) -> None:
    """
    Raises:
        ConfigError: It has another number of parts than its split rule, or of stars in their names than in `match`.
    """
    wanted = {"stack": 1, "gate_up": 2, "gate_up_interleaved": 2}.get(rule.split, 3)
    if len(rule.parts) != wanted or len({rule.match, *rule.parts}) != wanted + 1:
        raise ConfigError(
            f"{place(rule)}: split {rule.split!r} has names of {wanted} parts, each another, found {list(rule.parts)}"
        )
    if rule.match.count("*") > MOST_STARS:
        raise ConfigError(f"{place(rule)}: at most {MOST_STARS} * in a name work, found {rule.match.count('*')}")
    for part in rule.parts:
        if part.count("*") != rule.match.count("*") or part.count(_NUMBER) != int(rule.split == "stack"):
            number = (
                f", and one {_NUMBER} for the number of a matrix" if rule.split == "stack" else f" and no {_NUMBER}"
            )
            raise ConfigError(f"{place(rule)}: parts have as many * as match{number}, found {part!r}")


def _matched(rule: FusedParameter, stored: Collection[str]) -> Iterator[Fusion]:
    """Fusions of a rule, one for each text that its stars match; a name may be any text, dots included."""
    whole = {stars for name in stored if (stars := _stars(rule.match, name)) is not None}
    parts = {stars for name in stored for part in rule.parts if (stars := _stars(part, name)) is not None}
    for stars in sorted(whole | parts):
        fused = _filled(rule.match, stars)
        names = tuple(_filled(part, stars) for part in rule.parts)
        if rule.split == "stack" and stars not in whole:
            head, tail = names[0].split(_NUMBER)
            count = sum(
                name.startswith(head) and name.endswith(tail) and _is_number(name, head, tail) for name in stored
            )
            names = tuple(f"{head}{at}{tail}" for at in range(count))
        if stars in whole and stars in parts:
            raise ConfigError(f"{place(rule)}: the checkpoint has {fused} and parts of it ({', '.join(names)})")
        if stars not in whole and (missing := [name for name in names if name not in stored]):
            raise ConfigError(f"{place(rule)}: the checkpoint has parts of {fused}, but no {', '.join(missing)}")
        yield Fusion(rule=rule, fused=fused, names=names, is_stored_fused=stars in whole)


def _is_number(name: str, head: str, tail: str) -> bool:
    return name[len(head) : len(name) - len(tail)].isdecimal()


def _stars(pattern: str, name: str) -> tuple[str, ...] | None:
    text = re.escape(pattern).replace(r"\*", "(.*)").replace(re.escape(_NUMBER), r"\d+")
    match = re.fullmatch(text, name)
    return None if match is None else match.groups()


def _filled(pattern: str, stars: Sequence[str]) -> str:
    for text in stars:
        pattern = pattern.replace("*", text, 1)
    return pattern

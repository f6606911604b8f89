"""Which parameters a matrix rule gets, in which matrices, which an elementwise rule gets, and why. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from gangline.errors import ConfigError
from gangline.optim.plan.matrix import FragmentSplit, fragments
from gangline.spec.config.matrix_options import ParameterKind, Route
from gangline.spec.config.matrix_rule import EXCLUDE
from gangline.spec.profile import NamedParameter


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutedParameter:
    """One parameter and who updates it."""

    parameter: NamedParameter
    kind: ParameterKind
    reason: str
    split: FragmentSplit = FragmentSplit()


def route_parameters(
    parameters: Sequence[NamedParameter], *, exclude: Sequence[str] = EXCLUDE, routes: Sequence[Route] = (),
    is_part: bool = False,
) -> tuple[RoutedParameter, ...]:  # fmt: skip
    """Every parameter, in the order given.

    Args:
        parameters: All that are updated.
        exclude: Beginnings of parts of names, between dots and underscores: `head` is for `lm_head`, not `multihead`.
        routes: Each for the parameters that it matches; no other reason counts there.
        is_part: Of a model, as a stage of a pipeline is: routes may match what other parts have.

    Raises:
        ConfigError: No parameter is a matrix, one has three or more dimensions and no route or does not fall into
            matrices as its route says, two routes match one, or a route matches none.
    """
    for route in routes:
        if not is_part and not any(fnmatchcase(parameter.name, route.match) for parameter in parameters):
            raise ConfigError(
                f"optimizer.route: {route.match!r} matches no parameter; {_nearest(route.match, parameters)}"
            )
    routed_parameters = tuple(_routed(parameter, exclude, routes) for parameter in parameters)
    if not any(parameter.kind == "matrix" for parameter in routed_parameters):
        raise ConfigError(
            f"the matrix rule has no matrix among {len(routed_parameters)} parameters; check exclude and route, or use "
            "an elementwise rule alone"
        )
    return routed_parameters


def _nearest(match: str, parameters: Sequence[NamedParameter]) -> str:
    """Names that the pattern may be meant for, else the first ones."""
    names = [parameter.name for parameter in parameters]
    if near := get_close_matches(match, names, n=2, cutoff=0.7):
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(names[:4])} and {max(0, len(names) - 4)} more"


def _routed(each: NamedParameter, exclude: Sequence[str], routes: Sequence[Route]) -> RoutedParameter:
    matching = [route for route in routes if fnmatchcase(each.name, route.match)]
    if len(matching) > 1:
        raise ConfigError(f"optimizer.route: {matching[0].match!r} and {matching[1].match!r} both match {each.name}")
    if matching:
        kind, split = matching[0].kind, split_of(matching[0])
        if kind == "matrix":
            fragments(each.name, each.shape, split)  # or a ConfigError
        return RoutedParameter(parameter=each, kind=kind, split=split, reason=f"route {matching[0].match}")
    if each.module != "other":
        return RoutedParameter(parameter=each, kind="elementwise", reason=f"of a module of kind {each.module}")
    for part in exclude:
        if re.search(rf"(^|[._]){re.escape(part)}", each.name):
            return RoutedParameter(parameter=each, kind="elementwise", reason=f"exclude {part}")
    if len(each.shape) < 2:
        return RoutedParameter(parameter=each, kind="elementwise", reason="no matrix")
    if len(each.shape) > 2:
        raise ConfigError(
            f"{each.name} has shape {each.shape}: a matrix rule needs a route for it, with split = 'stack' if its "
            "first of three dimensions counts matrices, or kind = 'elementwise'"
        )
    return RoutedParameter(parameter=each, kind="matrix", reason="a matrix")


def split_of(route: Route) -> FragmentSplit:
    """How a route says that a fused parameter falls into matrices."""
    return FragmentSplit(kind=route.split, heads=route.heads, kv_heads=route.kv_heads, head_dim=route.head_dim)


def explain_routing(routed: Sequence[RoutedParameter]) -> str:
    """A line per kind of parameter: names without numbers, how many, shape, who updates it and why."""
    rows: dict[tuple[str, ...], int] = {}
    for parameter in routed:
        name = ".".join("*" if part.isdigit() else part for part in parameter.parameter.name.split("."))
        split = f" as {parameter.split.kind}" if parameter.split.kind != "none" else ""
        row = (name, " x ".join(map(str, parameter.parameter.shape)), parameter.kind + split, parameter.reason)
        rows[row] = rows.get(row, 0) + 1
    table = [(f"{count} x {row[0]}" if count > 1 else row[0], *row[1:]) for row, count in rows.items()]
    widths = [max(len(row[at]) for row in table) for at in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in table
    )

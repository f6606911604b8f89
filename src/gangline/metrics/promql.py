"""Which series an expression names, and whether they are there: for rules and boards, without a Prometheus."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gangline.errors import NotInstalledError
from gangline.metrics.catalogue import CATALOGUE

_VARIABLE = re.compile(r"\$(?:\{[^}]*\}|\w+)")
_QUERY = re.compile(r"^(?:label_values\((.+),[^,]+\)|query_result\((.+)\))$", re.DOTALL)
"""What only Grafana reads: its variables, and the functions around the expression of a variable."""
_TARGET_LABELS = {"le", "job", "instance", "gang", "namespace", "pod", "node"}
_TARGET_LABELS |= {"gangline_gang", "gangline_run", "gangline_project"}
"""What a scrape adds to every series, and a histogram to its buckets."""
_EXPRESSIONS = ("expr", "query", "definition")


def expressions_in(path: Path) -> Iterator[tuple[str, str]]:
    """(recorded name or "", expression) of each rule file, dashboard, or such file below a folder.

    Raises:
        OSError: The file does not exist.
        ValueError: It is neither JSON nor YAML.
        NotInstalledError: A rule file, where no reader of YAML is installed.
    """
    if path.is_dir():
        for each in sorted([*path.rglob("rules/*.yml"), *path.rglob("alerts/*.yml"), *path.rglob("*.json")]):
            yield from expressions_in(each)
        return
    text = path.read_text("utf-8")
    yield from _walk(json.loads(text) if path.suffix == ".json" else _yaml(text))


def check_expressions(found: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Sentences on gangline series, and labels of theirs, that are neither declared nor recorded; none: all are."""
    known = list(found)
    declared = {
        name: {*series.labels, *_TARGET_LABELS} for series in CATALOGUE.values() for name in series.sample_names
    }
    recorded = {name for name, _ in known if name}
    problems: dict[str, None] = {}
    for _, expression in known:
        try:
            selected = selectors_in(expression)
        except ValueError as error:
            if "gangline_" in expression:  # else it is no query of ours: the constant of a variable
                problems[f"no PromQL, {error}, in {_short(expression)}"] = None
            continue
        for name, labels in selected.items():
            if is_ours(name) and name not in declared and name not in recorded:
                problems[f"{name}: no series of the catalogue and no recorded one, in {_short(expression)}"] = None
            for label in sorted(labels - declared.get(name, labels)):
                problems[f"{name}: has no label {label}, in {_short(expression)}"] = None
    return tuple(problems)


def is_ours(series: str) -> bool:
    """Whether gangline would export or record a series of this name."""
    return series.startswith("gangline_") or ":gangline_" in series


def selectors_in(expression: str) -> dict[str, set[str]]:
    """Series that an expression or a query of Grafana names, each with the labels that it is selected by.

    Raises:
        NotInstalledError: There is no parser.
        ValueError: It is no PromQL.
    """
    try:
        import promql_parser
    except ImportError as error:
        raise NotInstalledError("wanted promql-parser, found none; pip install 'gangline[boards]'") from error
    query = _QUERY.match(expression.strip())
    text = next(filter(None, query.groups())) if query else expression
    nodes: list[Any] = [promql_parser.parse(_VARIABLE.sub("5m", text))]
    found: dict[str, set[str]] = {}
    for node in nodes:  # which grows
        match node:
            case promql_parser.VectorSelector():
                found.setdefault(node.name or "", set()).update(matcher.name for matcher in node.matchers.matchers)
            case promql_parser.MatrixSelector():
                nodes.append(node.vector_selector)
            case list():
                nodes += node
            case _:
                parts = (getattr(node, name, None) for name in ("expr", "lhs", "rhs", "args", "param"))
                nodes += [part for part in parts if part is not None]
    return found


def _walk(node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node, Mapping):
        for key in _EXPRESSIONS:
            if isinstance(node.get(key), str):
                yield str(node.get("record", "")), node[key]
        for each in node.values():
            yield from _walk(each)
    elif isinstance(node, list):
        for each in node:
            yield from _walk(each)


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise NotInstalledError("rules are YAML, and nothing here reads it; pip install 'gangline[boards]'") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {error}") from error


def _short(expression: str) -> str:
    flat = " ".join(expression.split())
    return flat if len(flat) <= 100 else flat[:99] + "…"

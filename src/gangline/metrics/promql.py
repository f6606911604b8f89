"""Which series an expression names, and whether they are there: for rules and boards, without a Prometheus.

A scan for words, no parser: what is wrong with an expression itself a real Prometheus says.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gangline.errors import ConfigError
from gangline.metrics.catalogue import CATALOGUE

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_NAME = re.compile(r"(?<![\w:$])[a-zA-Z_:][\w:]*")
_SELECTOR = re.compile(r"(?<![\w:$])([a-zA-Z_:][\w:]*)\s*\{([^{}]*)\}")
_LABEL = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_MATCHERS = re.compile(r"\{[^{}]*\}")
_TARGET_LABELS = {"le", "job", "instance", "gang", "namespace", "pod", "node"}
_TARGET_LABELS |= {"gangline_gang", "gangline_run", "gangline_project"}
"""What a scrape adds to every series, and a histogram to its buckets."""
_EXPRESSIONS = ("expr", "query", "definition")


def expressions_in(path: Path) -> Iterator[tuple[str, str]]:
    """(recorded name or "", expression) of each rule file, dashboard, or such file below a folder.

    Raises:
        OSError: The file does not exist.
        ValueError: It is neither JSON nor YAML.
        ImportError: A rule file, where no reader of YAML is installed.
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
        for name in series_in(expression) - declared.keys() - recorded:
            problems[f"{name}: no series of the catalogue and no recorded one, in {_short(expression)}"] = None
        for name, label in labels_in(expression):
            if name in declared and label not in declared[name]:
                problems[f"{name}: has no label {label}, in {_short(expression)}"] = None
    return tuple(problems)


def series_in(expression: str) -> set[str]:
    """Names of gangline's own series."""
    bare = _GROUPING.sub("", _MATCHERS.sub("", _TEXT.sub('""', expression)))
    words = {match[0] for match in _NAME.finditer(bare)}
    return {word for word in words if word.startswith("gangline_") or ":gangline_" in word}


def labels_in(expression: str) -> set[tuple[str, str]]:
    """(series, label) of every selector."""
    bare = _TEXT.sub('""', expression)
    return {(match[1], label) for match in _SELECTOR.finditer(bare) for label in _LABEL.findall(match[2])}


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
        raise ConfigError("rules are YAML, and nothing here reads it; pip install 'gangline[kubernetes]'") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {error}") from error


def _short(expression: str) -> str:
    flat = " ".join(expression.split())
    return flat if len(flat) <= 100 else flat[:99] + "…"

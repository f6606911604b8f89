"""Tables of the two files to dataclasses, and every rule asked about what could be read of them."""

from typing import Any, get_type_hints

from gangline.spec.line import Line
from gangline.spec.problems import Problem
from gangline.spec.rules_line import TABLE_RULES, Reader, line_rules
from gangline.spec.rules_site import site_rules
from gangline.spec.site import Site
from gangline.spec.structure import structure, structure_rest, unknown_key

_REQUIRED = ("project", "train")


def build_line(plain: dict[str, Any], reader: Reader | None) -> tuple[Line | None, list[Problem]]:
    """A line, or its problems table by table: a mistake in one does not hide those of the others."""
    tables: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, kind in get_type_hints(Line).items():
        if name in plain or name in _REQUIRED:
            tables[name], found = structure(kind, plain.get(name, {}), key=name)
            problems += found + _judge(name, kind, tables[name], plain.get(name), found)
    problems += [unknown_key(name, Line, "") for name in sorted(plain.keys() - get_type_hints(Line).keys())]
    if problems:
        return None, problems
    line = Line(**tables)
    return line, list(line_rules(line, reader))


def build_site(plain: dict[str, Any]) -> tuple[Site | None, list[Problem]]:
    """A site, or its problems."""
    site, problems = structure(Site, plain)
    known = {problem.key for problem in problems}
    judged = site or structure_rest(Site, plain, problems)
    if judged:
        problems += [problem for problem in site_rules(judged) if problem.key not in known]
    return site, problems


def _judge(name: str, kind: type, table: Any, plain: Any, found: list[Problem]) -> list[Problem]:
    """What the rules of a table say, also about the rest of one that has values of a wrong type."""
    if found:
        table = structure_rest(kind, plain, found, key=name) if isinstance(plain, dict) else None
    if table is None or name not in TABLE_RULES:
        return []
    known = {problem.key for problem in found}
    return [problem for problem in TABLE_RULES[name](table) if problem.key not in known]

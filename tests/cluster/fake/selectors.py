"""Label and field selectors."""

import re
from collections.abc import Callable
from typing import Any

from tests.cluster.fake.refusal import bad

Object = dict[str, Any]
_TERM = re.compile(r"\s*(?:(!?)([\w./-]+)|([\w./-]+)\s*(=|==|!=)\s*([\w.-]*)|([\w./-]+)\s+(in|notin)\s*\(([^)]*)\))\s*")
_FIELDS = {
    "pods": {"metadata.name", "metadata.namespace", "spec.nodeName", "status.phase", "status.podIP"},
    "events": {"metadata.name", "involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"},
    "jobs": {"metadata.name", "metadata.namespace", "status.successful"},
}


def by_labels(selector: str) -> Callable[[Object], bool]:
    terms = [_label_term(each) for each in re.split(r",(?![^(]*\))", selector) if each.strip()]
    return lambda body: all(term(body["metadata"].get("labels") or {}) for term in terms)


def by_fields(selector: str, plural: str) -> Callable[[Object], bool]:
    known = _FIELDS.get(plural, {"metadata.name", "metadata.namespace"})
    terms = []
    for each in filter(None, selector.split(",")):
        matched = re.fullmatch(r"([\w.]+)(!=|==|=)(.*)", each)
        if matched is None or matched[1] not in known:
            raise bad(f'"{each}" is not a known field selector: only {sorted(known)}')
        terms.append((matched[1], matched[2] != "!=", matched[3]))
    return lambda body: all((_field(body, name) == value) is wanted for name, wanted, value in terms)


def _label_term(text: str) -> Callable[[dict[str, str]], bool]:
    matched = _TERM.fullmatch(text)
    if matched is None:
        raise bad("found '=', expected: ',' or 'end of string'")
    negated, present, name, sign, value, listed, how, values = matched.groups()
    if present:
        return lambda labels: (present in labels) is not bool(negated)
    if name:
        return lambda labels: (labels.get(name) == value) is (sign != "!=")
    among = {each.strip() for each in values.split(",")}
    return lambda labels: (labels.get(listed) in among) is (how == "in")


def _field(body: Object, name: str) -> str:
    at: Any = body
    for part in name.split("."):
        at = at.get(part, "") if isinstance(at, dict) else ""
    return str(at)

"""Admission policies as an API server judges them: ValidatingAdmissionPolicies as rendered, their CEL evaluated here.

Bindings are taken for granted: the namespace is one that they select. Where an expression has no value the write is
refused, as `failurePolicy: Fail` says.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from cel_expr_python import cel

Object = dict[str, Any]
_VARIABLES = ("object", "oldObject", "request", "variables")


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A write, as admission sees it."""

    resource: str
    """`pods`, `jobs`, `secrets`."""
    object: Object
    old: Object | None = None
    """None: it is a creation."""
    may: tuple[str, ...] = ()
    """What whoever asks has rights for, as `get secrets`."""

    @property
    def operation(self) -> str:
        return "CREATE" if self.old is None else "UPDATE"


def refusals(policies: Iterable[Object], asked: Asked) -> list[str]:
    """Messages of all that refuses; empty: it is admitted."""
    fitting = [each["spec"] for each in policies if _is_matched(each["spec"], asked)]
    return [message for spec in fitting for message in _messages(spec, asked)]


def _is_matched(spec: Object, asked: Asked) -> bool:
    return any(
        asked.resource in rule["resources"] and asked.operation in rule["operations"]
        for rule in spec["matchConstraints"]["resourceRules"]
    )


def _messages(spec: Object, asked: Asked) -> Iterator[str]:
    assert spec["failurePolicy"] == "Fail"
    known = _known(asked)
    for condition in spec.get("matchConditions", ()):
        match _value(condition["expression"], known):
            case False:
                return
            case True:
                continue
        yield f"the condition {condition['name']} has no value"
    for variable in spec.get("variables", ()):
        value = _value(variable["expression"], known)
        if value is not _FAILED:
            known["variables"] |= {variable["name"]: value}
    for validation in spec["validations"]:
        if _value(validation["expression"], known) is not True:
            yield validation["message"]


def _known(asked: Asked) -> dict[str, Any]:
    request = {
        "operation": asked.operation,
        "resource": {"resource": asked.resource},
        "namespace": asked.object["metadata"].get("namespace", "gangline"),
    }
    return {
        "object": asked.object,
        "oldObject": asked.old,
        "request": request,
        "variables": {},
        "authorizer": ",".join(asked.may),
    }


_FAILED = object()
"""An expression that has no value, such as one of a field that is not there."""


def _value(expression: str, known: Mapping[str, Any]) -> Any:
    found = _compiled(expression).eval(data=dict(known))
    return _FAILED if found.type() == cel.Type.ERROR else found.plain_value()


@cache
def _compiled(expression: str) -> cel.Expression:
    return _environment().compile(expression)


@cache
def _environment() -> cel.Env:
    """With the server's `authorizer`, whose steps are words that are added up: RIGHTS|GROUP|RESOURCE|NAMESPACE|VERB."""
    text, plain = cel.Type.STRING, dict.fromkeys(_VARIABLES, cel.Type.DYN)
    steps = [
        _member(name, lambda asked, word: f"{asked}|{word}", text, text, gives=text)
        for name in ("group", "resource", "namespace", "check")
    ]
    allowed = _member("allowed", _is_allowed, text, gives=cel.Type.BOOL)
    return cel.NewEnv(variables=plain | {"authorizer": text}, functions=[*steps, allowed])


def _is_allowed(asked: str) -> bool:
    rights, _group, resource, _namespace, verb = asked.split("|")
    return f"{verb} {resource}" in rights.split(",")


def _member(name: str, work: Any, *takes: cel.Type, gives: cel.Type) -> cel.FunctionDecl:
    form = cel.Overload(id=f"authorizer_{name}", parameters=list(takes), return_type=gives, is_member=True, impl=work)
    return cel.FunctionDecl(name, [form])

"""Strict field validation by the published schemas, as `fieldValidation=Strict` does it."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema
from referencing import Registry, Resource
from tests.cluster.fake.refusal import bad

VERSION = "1.34"
_SCHEMAS = files("kubernetes_validate") / "kubernetes-json-schema"


def refuse_unknown(body: dict[str, Any], *, known: bool = True) -> None:
    """Raise what the server answers to fields that `body`'s kind has not, or to values of a wrong type."""
    found = validator(body["apiVersion"], body["kind"])
    if found is None:
        assert not known, f"no schema of {body['apiVersion']} {body['kind']}"
        return
    for error in found.iter_errors(body):
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)[1:]
        if error.validator == "additionalProperties":
            raise bad(f"{_start(body)}: strict decoding error: {_unknown(place, error)}")
        if error.validator != "required":  # the server fills in what it has a default for
            raise bad(f"{_start(body)}: json: cannot unmarshal {place}: {error.message[:200]}")


def _start(body: dict[str, Any]) -> str:
    return f'{body["kind"]} in version "{body["apiVersion"].rpartition("/")[2]}" cannot be handled as a {body["kind"]}'


def _unknown(place: str, error: jsonschema.ValidationError) -> str:
    names = [name for name in error.instance if name not in error.schema.get("properties", {})]
    return ", ".join(f'unknown field "{place}.{name}"' if place else f'unknown field "{name}"' for name in names)


@cache
def validator(api_version: str, kind: str, version: str = VERSION) -> jsonschema.Draft202012Validator | None:
    """That of a kind in one version of Kubernetes, unknown fields refused; None: no schema is published for it."""
    group, _, its_version = api_version.rpartition("/")
    name = f"{kind.lower()}-{group.split('.')[0]}-{its_version}" if group else f"{kind.lower()}-{its_version}"
    path = _folder(version) / f"{name}.json"
    if not path.is_file():
        return None
    registry = _definitions(version) @ Registry()
    return jsonschema.Draft202012Validator(json.loads(path.read_text()), registry=registry)


@cache
def _definitions(version: str) -> Resource[Any]:
    return Resource.from_contents(json.loads((_folder(version) / "_definitions.json").read_text()))


def _folder(version: str) -> Any:
    return _SCHEMAS / f"v{version}.0-local-strict"

"""Manifest of a gang: its objects as one YAML stream for reading and `kubectl apply`, without values of secrets."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import yaml

from gangline.launch.kubernetes.client.api import ApiConflict, KubernetesApi, Object
from gangline.launch.kubernetes.objects.labels import secret_name
from gangline.launch.kubernetes.objects.render import Rendered, RootName, render_as
from gangline.launch.kubernetes.objects.render_context import RenderContext
from gangline.launch.kubernetes.objects.root_objects import job_of, shared_runtime
from gangline.sanitize import visible
from gangline.spec.gang.driver_orders import coordinator_of


def render_yaml(kind: RootName, context: RenderContext) -> str:
    """Objects in the order of creation; the root as after its last write.

    Args:
        kind: Of the root.
        context: Of the gang; the facts about the cluster are not used to choose the root.

    Raises:
        ConfigError: The gang cannot be expressed as objects.
    """
    rendered = render_as(kind, context)
    return _heading(kind, context) + to_yaml(in_order(rendered))


def render_runtime_yaml(context: RenderContext, name: str) -> str:
    """The ClusterTrainingRuntime that an administrator creates where `launch.runtime` names it."""
    return to_yaml([shared_runtime(context, name)])


def dry_run(api: KubernetesApi, kind: RootName, context: RenderContext) -> None:
    """Let the API server validate every object as for a creation; nothing is created.

    Objects that exist are skipped. A TrainJob with its own runtime cannot be validated, as Trainer's webhook requires
    the runtime to exist.

    Raises:
        ApiRejected: The server refuses an object; the message is the server's own.
    """
    rendered = render_as(kind, context)
    root = () if rendered.before else ((rendered.root_path, rendered.root),)
    for path, thing in (*rendered.before, *root, *rendered.around, *rendered.shared):
        with suppress(ApiConflict):
            api.create(path, thing, dry_run=True)


def in_order(rendered: Rendered) -> list[Object]:
    """The objects after a submit, without owner references, whose uids only the server knows."""
    before = [thing for _, thing in rendered.before]
    around = [thing for _, thing in (*rendered.around, *rendered.shared)]
    return [*before, merge(rendered.root, rendered.release), *around]


def merge(thing: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(thing) if isinstance(thing, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merge(found.get(name), value)
    return found


def to_yaml(objects: Iterable[Object]) -> str:
    """YAML with fields in their order and without aliases; parsing it gives the objects again.

    Characters outside ASCII are kept unless one is invisible: YAML reads U+0085 as the end of a line, and terminals
    interpret others.
    """
    many = list(objects)
    text = _dump(many, allow_unicode=True)
    return text if visible(text) == text else _dump(many, allow_unicode=False)


def _dump(objects: list[Object], *, allow_unicode: bool) -> str:
    text: str = yaml.dump_all(
        objects, Dumper=_Plain, sort_keys=False, explicit_start=True, allow_unicode=allow_unicode, width=120
    )
    return text


class _Plain(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML comes without types
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 -- PyYAML asks with the value
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> Any:
    """A text of several lines as a block, for people read it."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _text)


def _heading(kind: RootName, context: RenderContext) -> str:
    podset, wanted = context.podset, []
    if podset.secrets:
        job = podset.name if kind == "job" else job_of(podset.name)
        wanted.append((secret_name(job), ", ".join(podset.secrets)))
    if (pod := coordinator_of(podset.env)) is not None:
        wanted += [(name, key) for name, _, key in (each.partition("/") for each in (pod.kit, pod.admin))]
    return "".join(
        f"# Must exist first: Secret {name} in namespace {context.namespace} with the keys {keys}.\n"
        for name, keys in wanted
    )

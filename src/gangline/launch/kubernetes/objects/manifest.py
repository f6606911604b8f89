"""Manifest of a gang: its objects as one YAML stream for people and `kubectl apply`, without values of secrets."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import yaml

from gangline.launch.kubernetes.client.api import ApiConflict, KubernetesApi, Object
from gangline.launch.kubernetes.objects.jobset import job_of
from gangline.launch.kubernetes.objects.labels import secret_name
from gangline.launch.kubernetes.objects.render import Rendered, RootName, render_as
from gangline.launch.kubernetes.objects.render_context import RenderContext
from gangline.launch.kubernetes.objects.trainjob import shared_runtime
from gangline.sanitize import visible


def render_yaml(kind: RootName, context: RenderContext) -> str:
    """In the order of creation, the root as its last write leaves it.

    Args:
        kind: Of the root.
        context: Of the gang; what the cluster serves is not asked.

    Raises:
        ConfigError: Something of it cannot be said to a cluster.
    """
    rendered = render_as(kind, context)
    return _heading(kind, context) + to_yaml(in_order(rendered))


def render_runtime_yaml(context: RenderContext, name: str) -> str:
    """The ClusterTrainingRuntime that an administrator creates where `launch.runtime` names it."""
    return to_yaml([shared_runtime(context, name)])


def dry_run(api: KubernetesApi, kind: RootName, context: RenderContext) -> None:
    """Let the API server judge every object as if it were created; nothing is.

    What has the name already was judged when it was made. A TrainJob whose runtime would be made with it cannot be
    tried: Trainer's webhook wants that to exist.

    Raises:
        ApiRejected: It would not take one, in its own words.
    """
    rendered = render_as(kind, context)
    root = () if rendered.before else ((rendered.root_path, rendered.root),)
    for path, thing in (*rendered.before, *root, *rendered.around):
        with suppress(ApiConflict):
            api.create(path, thing, dry_run=True)


def in_order(rendered: Rendered) -> list[Object]:
    """What a submit leaves behind, but for owners, which have a uid only on a server."""
    before = [thing for _, thing in rendered.before]
    around = [thing for _, thing in rendered.around]
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
    """Fields in the order of the objects, nothing by reference; reading it gives the objects again.

    Other letters than ASCII are left as they are, unless one is invisible: YAML takes U+0085 for the end of a line, and
    a terminal obeys others.
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


def _heading(kind: RootName, context: RenderContext) -> str:
    podset = context.podset
    if not podset.secrets:
        return ""
    job = podset.name if kind == "job" else job_of(podset.name)
    return (
        f"# Must exist first: Secret {secret_name(job)} in namespace {context.namespace}"
        f" with the keys {', '.join(podset.secrets)}.\n"
    )

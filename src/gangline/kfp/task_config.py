"""Configuration of pipeline tasks: one JSON string beside the run id, and secrets mounted as files of the pod.

Numbers inside lists and dictionaries become floats between tasks, and quotes end conditions: a string of JSON passes.
It holds references to secrets and never a secret. Only a pod that mounts `secret:k8s:NAME/KEY` can read it; a task
mounts the secrets below `MOUNT`, and its stages find the value as any other. No value becomes a variable of the
process.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.errors import ConfigError
from gangline.spec.codec import canonical, from_json
from gangline.spec.config.site import ServeTable, Site

LEASE_WAIT_SECONDS = 150.0
"""A task that is retried elsewhere waits until the lease of the lost one (90 s) has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskConfig:
    """What a component needs to know beside its run."""

    schema: int = 1
    site: Site
    repo: str | None = None
    """Folder of the line on this machine; None: the task unpacks `history`."""
    history: str | None = None
    """Key of the commits that a task without a repository looks back at."""
    folder: str = "."
    """Where line.toml lies inside `history`."""
    told: str | None = None
    """Folder where tasks tell the local driver what happens."""
    url: str | None = None
    """Page of the pipeline run, for the record."""
    patience_seconds: float = LEASE_WAIT_SECONDS
    """Longest wait for another driver of the run."""

    def to_text(self) -> str:
        return canonical(self).decode()

    @staticmethod
    def from_text(text: str) -> "TaskConfig":
        """Raises IntegrityError, naming the field."""
        return from_json(TaskConfig, text)


MOUNT = Path("/var/run/gangline/secrets")
_REFERENCE = re.compile(r"secret:k8s:([a-z0-9][a-z0-9.-]*)/([A-Za-z0-9._-]+)")


def secret_names(site: Site) -> tuple[str, ...]:
    """Kubernetes secrets that `site` refers to: what a task's pod has to mount."""
    return tuple(sorted({name for name, _ in _REFERENCE.findall(canonical(site).decode())}))


def mounted_secrets(
    site: Site, environ: Mapping[str, str], *, mount: Path | None = None
) -> tuple[Site, Mapping[str, str]]:
    """The site with readable references, and the environment in which they are found.

    Raises:
        ConfigError: A secret is not mounted.
    """
    text = canonical(site).decode()
    values: dict[str, str] = {}
    for name, key in sorted(set(_REFERENCE.findall(text))):
        variable = f"GANGLINE_SECRET_{len(values)}"
        values[variable] = _read(mount or MOUNT, name, key)
        text = text.replace(f'"secret:k8s:{name}/{key}"', f'"secret:env:{variable}"')
    return (from_json(Site, text), {**environ, **values}) if values else (site, environ)


def _read(mount: Path, name: str, key: str) -> str:
    try:
        return (mount / name / key).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"secret:k8s:{name}/{key}: wanted the secret mounted at {mount / name}, found {error};"
            f" the pipeline has to be compiled with this site, and the namespace to hold the secret {name}"
        ) from error


def site_for_tasks(site: Site) -> Site:
    """The site as tasks on a cluster see it: the store by its address there, their own secret, nobody's tokens."""
    mine = f"secret:k8s:{site.kfp.secret}"
    store = replace(
        site.store,
        endpoint=site.store.cluster_endpoint or site.store.endpoint,
        credentials=_on_cluster(site.store.credentials, f"{mine}/store-credentials")
        if site.store.credentials
        else None,
    )
    sign = replace(site.sign, key=_on_cluster(site.sign.key, f"{mine}/sign-key"))
    return replace(site, store=store, sign=sign, forge={}, serve=ServeTable(), kfp=replace(site.kfp, token=None))


def _on_cluster(reference: str | None, mine: str) -> str:
    return reference if reference and _REFERENCE.fullmatch(reference) else mine


def secret_variables(site: Site) -> frozenset[str]:
    """Variables that the references of `site` name: a task's process needs these and no other of the user's."""
    return frozenset(re.findall(r'"secret:env:([A-Za-z_][A-Za-z0-9_]*)"', canonical(site).decode()))

"""Configuration of pipeline tasks: one JSON string in addition to the run id, and secrets mounted as files of the pod.

A string, because kfp turns integers in lists and dictionaries into floats, and quotes break conditions. It holds
references to secrets and no values. Tasks mount the secrets of `secret:k8s:NAME/KEY` below `MOUNT`; their values do
not become variables of the process.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.errors import ConfigError
from gangline.spec.codec import canonical, from_json
from gangline.spec.config.secrets import AWS_VARIABLES
from gangline.spec.config.site import ServeTable, Site
from gangline.spec.config.site_tables import KITS

LEASE_WAIT_SECONDS = 150.0
"""A retried task waits until the lease of the lost one (90 s) has expired."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskConfig:
    """Configuration of a component, in addition to the run id."""

    schema: int = 1
    site: Site
    repo: str | None = None
    """Folder of the line on this machine; None: the task restores `history`."""
    history: str | None = None
    """Key of the commits for a task without a repository."""
    folder: str = "."
    """Folder of line.toml in `history`."""
    told: str | None = None
    """Folder of the event file for the local driver; None on a server."""
    url: str | None = None
    """Page of the pipeline run, for the record."""
    patience_seconds: float = LEASE_WAIT_SECONDS
    """Longest wait for another driver of the run."""

    def to_text(self) -> str:
        """The configuration as canonical JSON."""
        return canonical(self).decode()

    @staticmethod
    def from_text(text: str) -> "TaskConfig":
        """Parse `to_text`; raises IntegrityError with the name of an invalid field."""
        return from_json(TaskConfig, text)


MOUNT = Path("/var/run/gangline/secrets")
_REFERENCE = re.compile(rf"secret:k8s:(?!{KITS}[/-])([a-z0-9][a-z0-9.-]*)/([A-Za-z0-9._-]+)")
"""Secrets of tasks; those with kits of a federation are in the namespace of gangs, for their coordinators alone."""


def secret_names(site: Site) -> tuple[str, ...]:
    """Kubernetes secrets that `site` refers to, which the pods of tasks mount."""
    return tuple(sorted({name for name, _ in _REFERENCE.findall(canonical(site).decode())}))


def mounted_secrets(
    site: Site, environ: Mapping[str, str], *, mount: Path | None = None
) -> tuple[Site, Mapping[str, str]]:
    """The site with readable references, and the environment that has their values.

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
            f" compile the pipeline with this site, and create the secret {name} in the namespace"
        ) from error


def site_for_tasks(site: Site) -> Site:
    """The site for tasks on a cluster: with the store's address there, the secret of the tasks, and no tokens."""
    own_secret = f"secret:k8s:{site.kfp.secret}"
    store = replace(
        site.store,
        endpoint=site.store.cluster_endpoint or site.store.endpoint,
        credentials=_on_cluster(site.store.credentials, f"{own_secret}/store-credentials")
        if site.store.credentials not in (None, "aws:role")  # tasks have a role of their own
        else site.store.credentials,
    )
    sign = replace(site.sign, key=_on_cluster(site.sign.key, f"{own_secret}/sign-key"))
    return replace(site, store=store, sign=sign, forge={}, serve=ServeTable(), kfp=replace(site.kfp, token=None))


def _on_cluster(reference: str | None, own_secret: str) -> str:
    return reference if reference and _REFERENCE.fullmatch(reference) else own_secret


def secret_variables(site: Site) -> frozenset[str]:
    """Variables that `site` refers to, which are all that a task needs of the user's secrets."""
    named = re.findall(r'"secret:env:([A-Za-z_][A-Za-z0-9_]*)"', canonical(site).decode())
    return frozenset(named) | (AWS_VARIABLES if (site.store.credentials or "").startswith("aws:") else frozenset())

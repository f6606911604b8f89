"""Secrets that a gang gets: those of `[train.env]`, and of the sources of its shards; and the cache of these shards.

Everybody who may push a branch writes a line, and the driver's environment holds passwords. Therefore the site lists
the references that lines may name, and commits of forks get none.

Model code fills the cache itself, and so decides what is in it. Therefore runs that may publish share one with each
other alone, per project; experiments and other branches share another; a fork's gang has its own, deleted with it.
"""

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from gangline.errors import ConfigError, IntegrityError
from gangline.line.request.trust import Rights
from gangline.spec.config.secrets import VARIABLE, parse_reference, references_of, resolve_secret
from gangline.spec.config.site import Site
from gangline.spec.gang.driver_orders import SHARDS_KEY, SOURCE_SECRET, ShardAccess, cache_folder
from gangline.spec.plan import Plan
from gangline.spec.record import Record
from gangline.spec.run_flags import may_publish


def secret_names(record: Record, env: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the gang's secrets that become variables; a fork's gang has none."""
    if record.commit.trust != "own":
        return ()
    return tuple(f"{VARIABLE}{name}" for name in sorted(references_of(env)))


def require_secrets(env: Mapping[str, str], site: Site, environ: Mapping[str, str]) -> None:
    """Raise ConfigError unless the site allows every secret of the line and has it; never shows a value."""
    for name, reference in sorted(references_of(env).items()):
        _resolve(name, reference, site, environ)


def refused_references(env: Mapping[str, str], site: Site, environ: Mapping[str, str]) -> str:
    """Why `require_secrets` would refuse a run, for a preview; empty if it would not."""
    try:
        require_secrets(env, site, environ)
    except ConfigError as error:
        return str(error)
    return ""


def read_secret(name: str, rights: Rights, site: Site, environ: Mapping[str, str]) -> bytes:
    """Value of a variable, by its name in the gang's secrets.

    Raises:
        IntegrityError: The run with these rights names no such secret; a fork's run names none.
        ConfigError: The site does not allow it, or it is not set.
    """
    variable = name.removeprefix(VARIABLE)
    reference = rights.train_secrets.get(variable)
    if reference is None:
        raise IntegrityError(f"a gang asks for the secret {variable}, which its run does not name in [train.env]")
    return _resolve(variable, reference, site, environ).encode()


def left_out_variables(record: Record, env: Mapping[str, str]) -> str:
    """Sentence about the variables that a fork's gang does not get; empty if there are none."""
    names = sorted(references_of(env)) if record.commit.trust != "own" else []
    return f"{', '.join(names)} not set: commits of forks get no secrets" if names else ""


def _resolve(name: str, reference: str, site: Site, environ: Mapping[str, str]) -> str:
    key = f"line.toml: train.env.{name}"
    parsed = parse_reference(reference)
    text = f"{parsed.kind}:{parsed.name}"
    if not any(fnmatchcase(text, pattern) for pattern in site.secrets.train_env):
        raise ConfigError(
            f"{key}: wanted a secret that this site allows in lines, found {reference}; in site.toml,"
            f' [secrets] train_env = ["{text}"] allows it'
        )
    try:
        return resolve_secret(reference, environ)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


_SHARE_OF_POD = 0.5
"""Part of `pod.disk_bytes` for shards; code, logs and checkpoints in writing have the rest."""


def shard_access(plan: Plan, record: Record, site: Site) -> ShardAccess:
    """The default without data sets, so that the PodSet and its digest do not change."""
    if not plan.data.sets:
        return ShardAccess()
    sources = {
        name: replace(table, credentials=f"{SOURCE_SECRET}{name}" if table.credentials else None)
        for name, table in site.source.items()
        if table.ranks and record.commit.trust == "own"
    }
    if record.run.launcher.has_pods:  # the admission of namespaces for gangs takes no folders of a server
        return ShardAccess(cache_bytes=site.pod.disk_bytes * _SHARE_OF_POD, sources=sources)
    is_here = record.run.launcher.is_here  # a sandbox on another server would bind a folder that is not made there
    if record.commit.trust != "own" or site.cache.path is None or not is_here:
        return ShardAccess(sources=sources)
    folder = cache_folder(site.cache.path, record.run.project, published=may_publish(record))
    return ShardAccess(cache=folder, cache_bytes=site.cache.bytes, sources=sources)


def shard_variables(access: ShardAccess) -> dict[str, str]:
    """Variables of the gang."""
    return {} if access == ShardAccess() else {SHARDS_KEY: access.to_json().decode()}


def source_secrets(access: ShardAccess) -> tuple[str, ...]:
    """Names of the gang's secrets that open its sources."""
    return tuple(table.credentials for _, table in sorted(access.sources.items()) if table.credentials)


def read_source_secret(name: str, rights: Rights, site: Site, environ: Mapping[str, str]) -> str:
    """Value of a secret of `source_secrets`.

    Raises:
        IntegrityError: The run is a fork's, or the site does not let ranks read this source.
        ConfigError: It is not set.
    """
    table = site.source.get(name.removeprefix(SOURCE_SECRET))
    if rights.is_fork or table is None or not table.ranks or table.credentials is None:
        raise IntegrityError(f"a gang asks for the secret {name}: wanted a source with ranks = true, of an own commit")
    return resolve_secret(table.credentials, environ)

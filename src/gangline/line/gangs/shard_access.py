"""Cache and sources that a gang gets: by the trust of its commit, and by what its run may change for others.

Model code fills the cache itself, and so decides what is in it. Therefore runs that may publish share one with each
other alone, per project; experiments and other branches share another; a fork's gang has its own, deleted with it.
"""

from collections.abc import Mapping
from dataclasses import replace

from gangline.errors import IntegrityError
from gangline.line.request.trust import Rights
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site import Site
from gangline.spec.gang.driver_orders import SHARDS_KEY, SOURCE_SECRET, ShardAccess, cache_folder
from gangline.spec.plan import Plan
from gangline.spec.record import Record
from gangline.spec.run_flags import may_publish

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

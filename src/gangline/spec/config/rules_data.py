"""Rules of `[source.NAME]` and `[cache]` of `site.toml`."""

import re
from collections.abc import Iterator, Mapping

from gangline.spec.config import grammar
from gangline.spec.config.problems import ConfigProblem, at_least, show
from gangline.spec.config.secrets import FORMS, is_reference
from gangline.spec.config.source_table import CacheTable, SourceTable

_SOURCE_URL = re.compile(r"[a-z][a-z0-9+.-]*://([A-Za-z0-9._-]+@)?[^\s\0@]+")
"""Any scheme of fsspec, with a user's name at most before the host."""
_HOST = re.compile(r"[A-Za-z0-9.*?_-]+:[0-9]{1,5}")
_LEAST_CACHE_BYTES = 1e6


def source_rules(sources: Mapping[str, SourceTable]) -> Iterator[ConfigProblem]:
    """Problems of all `[source.NAME]`; a URL that may hold a password is not repeated."""
    for name, table in sources.items():
        key = f"source.{name}"
        if not grammar.SLUG.fullmatch(name):
            yield ConfigProblem(key, "a name of [a-z][a-z0-9-]{0,19}", show(name))
        scheme, _, rest = table.url.partition("://")
        if not _SOURCE_URL.fullmatch(table.url) or "::" in table.url:
            found = "another" if "@" in table.url else show(table.url)
            works = '"webhdfs://namenode:9870/corpora" and "file:///data" work; a password goes into credentials'
            yield ConfigProblem(f"{key}.url", "a URL of fsspec with its scheme", found, works)
        elif ".." in rest.split("/") or (scheme == "file" and not rest.startswith("/")):
            yield ConfigProblem(f"{key}.url", "an absolute path without ..", show(table.url), '"file:///data" works')
        if table.credentials is not None and not is_reference(table.credentials):
            yield ConfigProblem(
                f"{key}.credentials", "a reference to a secret", "a value that is not shown", f"write {FORMS}"
            )
        for index, each in enumerate(table.hosts):
            if not _HOST.fullmatch(each) or not each.rpartition(":")[0].strip("*?."):
                works = '"datanode-*.example:9864" works'
                yield ConfigProblem(
                    f"{key}.hosts[{index}]", "HOST:PORT, with * for a part of the name", show(each), works
                )


def cache_rules(cache: CacheTable) -> Iterator[ConfigProblem]:
    """Problems of `[cache]`."""
    if cache.path is not None:
        parts = cache.path.split("/")
        if not cache.path.startswith("/") or {".", ".."} & set(parts) or not cache.path.isprintable() or not any(parts):
            yield ConfigProblem("cache.path", "an absolute folder", show(cache.path), '"/nvme/gangline" works')
    yield from at_least("cache.bytes", cache.bytes, _LEAST_CACHE_BYTES, "2e12 is 2 TB")

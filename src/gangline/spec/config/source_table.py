"""`[source.NAME]` and `[cache]` of a site as frozen data: where data sets are read from, and what a server keeps."""

from dataclasses import dataclass
from typing import Annotated

from gangline.spec.bounds import Bound


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceTable:
    """A store of data that is not gangline's own, as `[source.NAME]`."""

    url: str
    """fsspec URL that all paths of the source lie below: `webhdfs://namenode:9870/corpora`, `file:///data`."""
    credentials: str | None = None
    """Reference; the value is `USER:PASSWORD`, or a token."""
    hosts: tuple[str, ...] = ()
    """Hosts with ports that the source may redirect to, `datanode-*.example:9864`; none: its own host alone."""
    ranks: bool = False
    """Gangs of own commits may read it in place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheTable:
    """Shards of data sets that a server keeps between runs; without a path each gang fetches its own."""

    path: str | None = None
    """Absolute path of the folder."""
    bytes: Annotated[float | None, Bound(least=1e6, works="2e12 is 2 TB")] = None
    """Most bytes that it keeps; none: 0.8 of the disk."""

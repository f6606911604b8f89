"""Where the ranks of a gang read shards of data sets and keep them, as the driver alone may say it to them."""

from dataclasses import dataclass, field

from gangline.spec.codec import Document
from gangline.spec.config.site_tables import SourceTable

SHARDS_KEY = "GANGLINE_SHARDS"
"""Variable with a `ShardAccess` as JSON; lines cannot set it."""
SOURCE_SECRET = "source."  # noqa: S105  # the start of a name
"""Prefix of the names of sources among the secrets of a gang."""
CACHES = "shards"
"""Folder below `cache.path` of a site, closed to model code; each kind of runs has a folder of its own in it."""

PUBLISHED, OTHER = "published", "other"
"""Ends of the folders' names: for runs that may publish, which no other code may write, and for all others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardAccess(Document):
    """Cache and sources of a gang."""

    cache: str | None = None
    """Folder that other gangs of its kind use, too; none: one in the folder of the gang."""
    cache_bytes: float | None = None
    sources: dict[str, SourceTable] = field(default_factory=dict)
    """Sources by name; their credentials are names of secrets of the gang, not references of the site."""


def cache_folder(path: str, project: str, *, published: bool) -> str:
    """Folder below `cache.path` of a site for the runs of a project of one kind."""
    return f"{path.rstrip('/')}/{CACHES}/{project}-{PUBLISHED if published else OTHER}"

"""What the driver alone says to processes of a gang: its coordinator, where shards are read, what is scored."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline.spec.codec import Document
from gangline.spec.config.site_tables import SourceTable

COORDINATOR_KEY = "GANGLINE_COORDINATOR"
"""Variable of the gang with a `CoordinatorPod` as JSON; lines cannot set it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorPod(Document):
    """Coordinator of a federated gang: a container next to the one rank in its pod, with kits that the rank has not."""

    image: str
    """Image by digest, the site's own: what runs in it reads the kits."""
    kit: str
    """Archive of the server kit, `SECRET/KEY`; the Secret is in the namespace of the gang."""
    admin: str
    """Archive of the admin kit, likewise."""
    service: str
    """Service that members dial."""
    port: int
    orders: str
    """Key of `CoordinatorOrders` in the store."""


def coordinator_of(env: Mapping[str, str]) -> CoordinatorPod | None:
    """The coordinator that variables of a gang name; None: it has none."""
    text = env.get(COORDINATOR_KEY)
    return CoordinatorPod.from_json(text) if text else None


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


ORDER_FILE, MODEL_FOLDER = "score.json", "model"
"""Names in the data folder of the gang."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreOrder(Document):
    """Shards to score, and how."""

    columns: tuple[str, ...]
    """Columns of the data set."""
    batch: int
    """Rows of one forward pass."""
    outputs: tuple[str, ...] = ()
    """Names of those that are kept; empty: all."""
    shards: tuple[tuple[str, str], ...]
    """Digest of the shard, and name of its output."""

    @staticmethod
    def output_key(run_prefix: str, name: str) -> str:
        """Where the output of that name lies, which no one believes until the driver has checked it."""
        return f"{run_prefix}/scores/{name}.arrow"

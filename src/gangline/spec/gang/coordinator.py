"""What the driver says to the coordinator of a federated gang on a cluster, and to its rank."""

from collections.abc import Mapping
from dataclasses import dataclass

from gangline.spec.codec import Document

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

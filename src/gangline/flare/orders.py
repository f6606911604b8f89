"""What a coordinator is to do: which run a driver offers, and where kits and folders are where it runs."""

from dataclasses import dataclass
from pathlib import Path

from gangline.flare.offer import Offer, make_offer
from gangline.signing.keys import SigningKey
from gangline.spec.codec import Document
from gangline.spec.plan import Plan
from gangline.storage.folder.durable_files import replace_file


@dataclass(frozen=True, kw_only=True, slots=True)
class Coordination(Document):
    """Orders of the process."""

    kit: str
    """Folder of the server kit."""
    admin: str
    """Folder of the admin kit."""
    mailbox: str
    """Folder that the gang's rank asks through."""
    roster: tuple[str, ...]
    quorum: int
    wait_seconds: float
    """Longest wait for a quorum."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorOrders(Document):
    """What a driver says to a coordinator, wherever that runs."""

    offer: Offer
    signature: str
    """Signature of the driver's key over the offer."""
    wait_seconds: float
    """Longest wait for a quorum."""

    def at(self, *, kit: Path, admin: Path, mailbox: Path) -> Coordination:
        """Orders of the process, with the folders where it runs."""
        terms = self.offer.terms
        return Coordination(
            kit=str(kit), admin=str(admin), mailbox=str(mailbox), roster=terms.roster, quorum=terms.table.quorum,
            wait_seconds=self.wait_seconds,
        )  # fmt: skip


def make_orders(plan: Plan, layer: bytes, key: SigningKey, *, wait_seconds: float) -> CoordinatorOrders:
    """Orders for the run of `plan`, whose offer `key` signs."""
    offer, signature = make_offer(plan, layer, key)
    return CoordinatorOrders(offer=offer, signature=signature, wait_seconds=wait_seconds)


def prepare(folder: Path, found: Coordination, orders: CoordinatorOrders, layer: bytes) -> None:
    """Write what a coordinator in `folder` needs."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    contents = {"coordination.json": found.to_json(), "offer.json": orders.offer.to_json(),
                "signature": orders.signature.encode(), "layer.zip": layer}  # fmt: skip
    for name, data in contents.items():
        replace_file(folder / name, data, durable=False)

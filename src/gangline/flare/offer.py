"""What a coordinator offers to a member: a plan, the code that it trains, and whose key signed both."""

import re
from dataclasses import dataclass, replace
from hashlib import sha256

from gangline.errors import IntegrityError
from gangline.signing.keys import PublicKey, SigningKey
from gangline.spec.codec import Document, digest
from gangline.spec.federated import FederatedTable
from gangline.spec.plan import Plan

DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer(Document):
    """One run, as its coordinator offers it to all members alike."""

    plan: str
    """The plan as JSON."""
    code: str
    """SHA-256 of the code layer."""
    key: str
    """Public key of the coordinator, PEM."""

    @property
    def key_id(self) -> str:
        """Id of that key, as `gangline keys` shows it."""
        return PublicKey.from_pem(self.key.encode(), "the offer").key_id

    @property
    def digest(self) -> str:
        """SHA-256 of plan, code and key."""
        return digest(self)

    @property
    def terms_digest(self) -> str:
        """SHA-256 of all that an administrator approves: code, key, roster and every setting; a run's name is none."""
        plan = Plan.from_json(self.plan)
        unnamed = replace(plan, run="", run_prefix=plan.run_prefix.rpartition("/")[0])
        return digest(replace(self, plan=unnamed.to_json().decode()))

    @property
    def terms(self) -> "OfferTerms":
        """What the plan asks for.

        Raises:
            IntegrityError: It is no plan of a federation with real members, or wants another program than a task.
        """
        plan = Plan.from_json(self.plan)
        if plan.federation is None or plan.federation.simulated or plan.program.task is None:
            raise IntegrityError(f"{plan.run}: wanted the plan of a task over members of a federation, found another")
        *_, commit, _ = ("", "", *plan.run_prefix.split("/"))
        return OfferTerms(plan=plan, commit=commit, roster=plan.federation.roster, table=plan.federation.table)


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferTerms:
    """What a plan asks a member for."""

    plan: Plan
    commit: str
    roster: tuple[str, ...]
    table: FederatedTable


def make_offer(plan: Plan, layer: bytes, key: SigningKey) -> tuple[Offer, str]:
    """The offer of `plan` with its code layer, and the signature over it."""
    offer = Offer(plan=plan.to_json().decode(), code=sha256(layer).hexdigest(), key=key.public.pem.decode())
    return offer, key.sign(offer.to_json())


def read_offer(data: bytes, signature: str) -> Offer:
    """An offer that is what its signature says. Raises IntegrityError for any other."""
    offer = Offer.from_json(data)
    PublicKey.from_pem(offer.key.encode(), "the offer").verify(signature, data)
    if not DIGEST.fullmatch(offer.code):
        raise IntegrityError(f"wanted the digest of a code layer, found {offer.code[:80]!r}")
    return offer

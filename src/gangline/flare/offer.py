"""What a coordinator offers to a member: a plan, the code that it trains, and whose key signed both."""

from dataclasses import dataclass
from hashlib import sha256

from gangline.errors import IntegrityError
from gangline.signing.keys import PublicKey, SigningKey
from gangline.spec.codec import Document, digest
from gangline.spec.plan import Plan


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
    def terms(self) -> "OfferTerms":
        """What the plan asks for.

        Raises:
            IntegrityError: It is no plan of a federation with real members, or wants another program than a task.
        """
        plan = Plan.from_json(self.plan)
        if plan.federation is None or plan.federation.simulated or plan.program.task is None:
            raise IntegrityError(f"{plan.run}: wanted the plan of a task over members of a federation, found another")
        table, (*_, commit, _) = plan.federation.table, ("", "", *plan.run_prefix.split("/"))
        spare = -(-plan.rounds // 10) if table.spare_rounds is None else table.spare_rounds
        return OfferTerms(
            plan=plan, commit=commit, roster=plan.federation.roster, epsilon=table.epsilon,
            delta=table.delta, trainings=plan.rounds + spare, secure_sum=table.secure_sum,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferTerms:
    """What a plan asks a member for."""

    plan: Plan
    commit: str
    roster: tuple[str, ...]
    epsilon: float | None
    """Privacy budget of the run; None: it asks for no privacy."""
    delta: float
    trainings: int
    """Rounds, and those that may be lost."""
    secure_sum: bool
    """The coordinator is to see sums alone."""


def make_offer(plan: Plan, layer: bytes, key: SigningKey) -> tuple[Offer, str]:
    """The offer of `plan` with its code layer, and the signature over it."""
    offer = Offer(plan=plan.to_json().decode(), code=sha256(layer).hexdigest(), key=key.public.pem.decode())
    return offer, key.sign(offer.to_json())


def read_offer(data: bytes, signature: str) -> Offer:
    """An offer that is what its signature says. Raises IntegrityError for any other."""
    offer = Offer.from_json(data)
    PublicKey.from_pem(offer.key.encode(), "the offer").verify(signature, data)
    return offer

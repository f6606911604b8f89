"""A member: answers offers by its settings, its approvals and its budget, and lets trainings begin.

`gangline federate join` writes its settings, `member.toml` of its kit; its administrator alone changes them.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gangline.errors import ConfigError, GateError, IntegrityError, storage_errors
from gangline.flare.kit import Kit, require_own
from gangline.flare.member.approval import ADMINISTRATOR, Codes, OfferedCode
from gangline.flare.member.budget import PrivacyLedger
from gangline.flare.offer import Offer, OfferTerms, read_offer
from gangline.spec.codec import Document
from gangline.spec.config.load import load_text
from gangline.spec.config.site_tables import MemberTable
from gangline.spec.federated import RefusedReason
from gangline.storage.folder.durable_files import replace_file


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferAnswer(Document):
    """A member's word on an offer."""

    state: Literal["accepted", "pending", "refused"]
    reason: RefusedReason | None = None
    """Why it is refused."""
    message: str = ""


class FederationMember:
    """One member, on its own machine."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self.codes = Codes(kit.own / "codes")
        self.ledger = PrivacyLedger(kit.own / "ledger.jsonl")

    def settings(self) -> MemberTable:
        """Settings as they are now. Raises ConfigError."""
        return read_settings(self._kit)

    def answer(self, data: bytes, signature: str, layer: bytes | None) -> OfferAnswer:
        """What this member says to an offer; nothing is spent and no code runs.

        Raises:
            ConfigError: Its settings are wrong, which the coordinator need not know.
            StorageError: Its disk is full.
        """
        try:
            offer = read_offer(data, signature)
            settings, terms = self.settings(), offer.terms
            self._require_terms(terms, settings)
            code = self.codes.keep(offer, layer)
            if not self._is_approved(code.approved_by, offer, settings):
                return OfferAnswer(state="pending", message=f"approval of offer {offer.terms_digest[:8]} is pending")
            if code.approved_by is None:
                self.codes.approve(offer, by=offer.key_id)
            if terms.table.epsilon is not None:
                self.ledger.require_room(_paid_as(offer, terms), epsilon=terms.table.epsilon, budget=settings.epsilon)
        except GateError as error:
            return OfferAnswer(state="refused", reason="budget", message=str(error))
        except IntegrityError as error:
            return OfferAnswer(state="refused", reason="code", message=str(error))
        return OfferAnswer(state="accepted")

    def begin_training(self, offer: Offer) -> int:
        """Pay for one training of an offer that was accepted; it may begin when this returns.

        Returns:
            How many were paid for, this one included; 0 where the run asks for no privacy.

        Raises:
            GateError: Over budget.
            GanglineError: The code is not approved, or the ledger cannot be written.
        """
        settings, terms = self.settings(), offer.terms
        self.code(offer)
        self._require_terms(terms, settings)
        if terms.table.epsilon is None:
            return 0
        return self.ledger.begin_training(
            _paid_as(offer, terms), epsilon=terms.table.epsilon, delta=terms.table.delta,
            trainings=terms.plan.most_trainings, budget=settings.epsilon,
        )  # fmt: skip

    def trainings(self, offer: Offer) -> int:
        """How many private trainings of an offer were paid for."""
        return self.ledger.trainings(_paid_as(offer, offer.terms))

    def code(self, offer: Offer) -> bytes:
        """The code layer of an offer that is approved now. Raises IntegrityError where it is not."""
        by, shown = self.codes.approved_by(offer), offer.terms_digest[:8]
        if not self._is_approved(by, offer, self.settings()):
            raise IntegrityError(
                f"offer {shown} is not approved here; `gangline federate show {shown}` says what it is"
            )
        return self.codes.layer(offer)

    def pending(self) -> list[OfferedCode]:
        """Offers that wait for the administrator."""
        settings = self.settings()
        return [code for code in self.codes.all() if not self._is_approved(code.approved_by, code.offer, settings)]

    def _require_terms(self, terms: OfferTerms, settings: MemberTable) -> None:
        if self._kit.name not in terms.roster:
            raise IntegrityError(f"wanted {self._kit.name} on the roster, found {', '.join(terms.roster)}")
        if terms.table.epsilon is None and settings.private:
            raise GateError(f"{terms.plan.run}: wanted federated.epsilon, found none; this member is private")

    def _is_approved(self, by: str | None, offer: Offer, settings: MemberTable) -> bool:
        """Whether the administrator approved the offer, or it is of a key that is a signer's still."""
        return by == ADMINISTRATOR or self._is_of_signer(offer, settings)

    def _is_of_signer(self, offer: Offer, settings: MemberTable) -> bool:
        """Whether the whole key of the offer, and not its short id alone, is that of a signer."""
        if settings.approve != "signed":
            return False
        return any(self._signer(signer) == offer.key.encode() for signer in settings.signers)

    def _signer(self, key_id: str) -> bytes:
        path = self._kit.own / "keys" / f"{key_id}.pub"
        if not path.exists():
            raise ConfigError(f"{self._kit.settings}: signers name {key_id}: put its public PEM at {path}")
        require_own(path)
        return path.read_bytes()


def _paid_as(offer: Offer, terms: OfferTerms) -> str:
    """Name in the ledger: a plan that differs in anything pays for itself, whatever its run is called."""
    return f"{terms.plan.run[:100]}:{offer.digest[:16]}"


def read_settings(kit: Kit) -> MemberTable:
    """The settings of a member, read each time they count.

    Raises:
        ConfigError: Others may write the file or the folder of data is not there; with every problem of the file.
    """
    require_own(kit.settings)
    table = load_text(MemberTable, kit.settings.read_text(), file=str(kit.settings))
    if not Path(table.data).is_dir():
        raise ConfigError(f"{kit.settings}: data: wanted a folder, found none at {table.data}")
    return table


def write_settings(kit: Kit, *, data: Path, epsilon: float) -> None:
    """Write the settings of a new member; those of an earlier `join` stay as they are but for these two.

    Raises:
        StorageError: The kit cannot be written.
    """
    wanted = {"data": json.dumps(str(data)), "epsilon": str(float(epsilon))}
    with storage_errors(kit.settings):
        kit.own.mkdir(mode=0o700, exist_ok=True)
        before = kit.settings.read_text().splitlines() if kit.settings.exists() else []
        kept = [line for line in before if line.partition("=")[0].strip() not in wanted]
        text = [*(f"{key} = {value}" for key, value in wanted.items()), *kept]
        replace_file(kit.settings, "\n".join([*text, ""]).encode(), durable=True)
        kit.settings.chmod(0o600)

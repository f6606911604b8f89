"""Which code may read a member's data: each offer waits until the administrator, or a signer, approved it.

    codes/CODE/layer.zip              the code as it was offered
    codes/CODE/offer.json             the last offer of it
    codes/CODE/approved/TERMS.json    an offer that was approved, by whom and when

An approval is for the digest of everything that was seen: with another member, setting or key the code waits again.
Nothing of a code layer is imported here, or ever outside of the sandbox.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from gangline.errors import IntegrityError, UsageError, storage_errors
from gangline.flare.offer import DIGEST, Offer
from gangline.sanitize import to_json
from gangline.spec.codec import Document, to_plain
from gangline.storage.folder.durable_files import replace_file
from gangline.storage.objects.code_layer import read_layer, unpack

MOST_PENDING = 20
"""Code layers that wait at the same time: a coordinator cannot fill the disk."""
ADMINISTRATOR = "administrator"
"""Who approves by hand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval(Document):
    """Word that an offer may run."""

    offer: Offer
    by: str
    """`administrator`, or the key whose signature sufficed."""
    at: str
    """Time in UTC."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferedCode:
    """The last offer of a code layer."""

    offer: Offer
    since: datetime
    """When its code was first offered."""
    approved_by: str | None
    """Who approved exactly this offer; None: it is not approved."""


class Codes:
    """Code layers that were offered to a member."""

    def __init__(self, folder: Path) -> None:
        """Keep them in `folder`, which is made where it is missing."""
        self._folder = folder

    def keep(self, offer: Offer, layer: bytes | None) -> OfferedCode:
        """Keep an offer with its code; None: an earlier offer brought it.

        Raises:
            IntegrityError: The layer is none, or another one than was signed, or too many wait already.
            StorageError: The disk is full.
        """
        folder = self._folder / offer.code
        with storage_errors(folder):
            if not (folder / "layer.zip").exists():
                if layer is None or sha256(layer).hexdigest() != offer.code:
                    raise IntegrityError(f"wanted the code layer {offer.code[:8]} that was signed, found another")
                read_layer(layer, name=f"code {offer.code[:8]}")
                if sum(code.approved_by is None for code in self.all()) >= MOST_PENDING:
                    raise IntegrityError(f"{MOST_PENDING} code layers wait for approval here, and no more may")
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                replace_file(folder / "layer.zip", layer, durable=True)
            replace_file(folder / "offer.json", offer.to_json(), durable=True)
        return self._of(folder)

    def all(self) -> Iterator[OfferedCode]:
        """All of them, the oldest first."""
        folders = self._folder.iterdir() if self._folder.is_dir() else ()
        codes = [self._of(folder) for folder in folders if (folder / "offer.json").is_file()]
        yield from sorted(codes, key=lambda code: (code.since, code.offer.code))

    def named(self, prefix: str) -> OfferedCode:
        """The offer whose digest of terms begins so. Raises UsageError unless there is one."""
        codes = [code for code in self.all() if prefix and code.offer.terms_digest.startswith(prefix)]
        if len(codes) != 1:
            shown = ", ".join(code.offer.terms_digest[:8] for code in self.all()) or "none"
            raise UsageError(f"wanted one offer, found {len(codes)} that begin with {prefix!r}; there are {shown}")
        return codes[0]

    def seen(self, digest: str) -> OfferedCode:
        """The offer with this whole digest of terms, which `gangline federate show` printed under what they are.

        Raises:
            UsageError: It is no whole digest: of a part of it, a coordinator can make another offer that begins so.
            IntegrityError: No offer has it now: the coordinator has changed its own since.
        """
        if not DIGEST.fullmatch(digest):
            raise UsageError(
                f"wanted the whole digest of an offer, 64 hex digits, found {digest[:80]!r}; the last line of"
                " `gangline federate show` has it"
            )
        code = next((offered_code for offered_code in self.all() if offered_code.offer.terms_digest == digest), None)
        if code is None:
            shown = ", ".join(offered_code.offer.terms_digest[:8] for offered_code in self.all()) or "none"
            raise IntegrityError(
                f"wanted the offer {digest[:8]} that was shown, found it changed or gone; there are {shown}: read what"
                " `gangline federate show` says of those"
            )
        return code

    def approve(self, offer: Offer, *, by: str) -> None:
        """Let an offer run, and no other one of its code.

        Raises:
            IntegrityError: The layer on the disk is another one.
            StorageError: The disk is full.
        """
        self.layer(offer)
        approval = Approval(offer=offer, by=by, at=datetime.now(UTC).isoformat(timespec="seconds"))
        path = self._approval(offer)
        with storage_errors(path):
            path.parent.mkdir(exist_ok=True, mode=0o700)
            replace_file(path, approval.to_json(), durable=True)

    def approved_by(self, offer: Offer) -> str | None:
        """Who approved exactly this offer; None: it is not approved."""
        path = self._approval(offer)
        return Approval.from_json(path.read_bytes()).by if path.exists() else None

    def layer(self, offer: Offer) -> bytes:
        """The code of an offer. Raises IntegrityError where the disk has another one."""
        data = (self._folder / offer.code / "layer.zip").read_bytes()
        if sha256(data).hexdigest() != offer.code:
            raise IntegrityError(f"code {offer.code[:8]}: its file was changed; delete {self._folder / offer.code}")
        return data

    def unpack(self, offer: Offer, folder: Path) -> int:
        """Lay the code of an offer out in `folder/code`, its plan next to it, to be read; returns how many files."""
        count = unpack(self.layer(offer), folder / "code")
        (folder / "plan.json").write_text(to_json(to_plain(offer.terms.plan), indent=2))
        return count

    def _of(self, folder: Path) -> OfferedCode:
        offer = Offer.from_json((folder / "offer.json").read_bytes())
        since = datetime.fromtimestamp((folder / "layer.zip").stat().st_mtime, UTC)
        return OfferedCode(offer=offer, since=since, approved_by=self.approved_by(offer))

    def _approval(self, offer: Offer) -> Path:
        return self._folder / offer.code / "approved" / f"{offer.terms_digest}.json"

"""Which code may read a member's data: each code layer waits until the administrator, or a signer, approved it.

    codes/DIGEST/layer.zip       the code as it was offered
    codes/DIGEST/offer.json      the last offer of it
    codes/DIGEST/approved.json   the roster that was seen when it was approved

An approval is for one code and one roster: with other members the code waits again. Nothing of a code layer is
imported here, or ever outside of the sandbox.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from gangline.errors import IntegrityError, UsageError, storage_errors
from gangline.flare.offer import Offer
from gangline.spec.codec import Document
from gangline.storage.folder.durable_files import replace_file
from gangline.storage.objects.code_layer import read, unpack

MOST_PENDING = 20
"""Code layers that wait at the same time: a coordinator cannot fill the disk."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval(Document):
    """Word of an administrator that a code may run among these members."""

    code: str
    roster: tuple[str, ...]
    by: str
    """`administrator`, or the key whose signature sufficed."""
    at: str
    """Time in UTC."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferedCode:
    """A code layer as `gangline federate pending` lists it."""

    offer: Offer
    since: datetime
    """When it was first offered."""
    roster: tuple[str, ...] | None
    """Members that were approved with it; None: it is not approved."""

    @property
    def is_pending(self) -> bool:
        """Whether it waits for approval, the first time or because of other members."""
        return self.roster != self.offer.terms.roster


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
        if not _DIGEST.fullmatch(offer.code):
            raise IntegrityError(f"wanted the digest of a code layer, found {offer.code[:80]!r}")
        folder = self._folder / offer.code
        with storage_errors(folder):
            if not (folder / "layer.zip").exists():
                if layer is None or sha256(layer).hexdigest() != offer.code:
                    raise IntegrityError(f"wanted the code layer {offer.code[:8]} that was signed, found another")
                read(layer, name=f"code {offer.code[:8]}")
                if sum(each.is_pending for each in self.all()) >= MOST_PENDING:
                    raise IntegrityError(f"{MOST_PENDING} code layers wait for approval here, and no more may")
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                replace_file(folder / "layer.zip", layer, durable=True)
            replace_file(folder / "offer.json", offer.to_json(), durable=True)
        return self._of(folder)

    def all(self) -> Iterator[OfferedCode]:
        """All of them, the oldest first."""
        folders = self._folder.iterdir() if self._folder.is_dir() else ()
        found = [self._of(each) for each in folders if (each / "offer.json").is_file()]
        yield from sorted(found, key=lambda each: (each.since, each.offer.code))

    def named(self, prefix: str) -> OfferedCode:
        """The code whose digest begins so. Raises UsageError unless there is one."""
        found = [each for each in self.all() if prefix and each.offer.code.startswith(prefix)]
        if len(found) != 1:
            shown = ", ".join(each.offer.code[:8] for each in self.all()) or "none"
            raise UsageError(f"wanted one code, found {len(found)} that begin with {prefix!r}; there are {shown}")
        return found[0]

    def approve(self, code: OfferedCode, *, by: str) -> None:
        """Let this code run among the members of its offer.

        Raises:
            IntegrityError: The layer on the disk is another one.
            StorageError: The disk is full.
        """
        self.layer(code.offer)
        approval = Approval(
            code=code.offer.code, roster=code.offer.terms.roster, by=by,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
        )  # fmt: skip
        path = self._folder / code.offer.code / "approved.json"
        with storage_errors(path):
            replace_file(path, approval.to_json(), durable=True)

    def approved_layer(self, offer: Offer) -> bytes | None:
        """The code of an offer, if it is approved among these members; None: it waits."""
        folder = self._folder / offer.code
        if not (folder / "layer.zip").exists():
            return None
        return self.layer(offer) if self._approved(folder) == offer.terms.roster else None

    def layer(self, offer: Offer) -> bytes:
        """The code of an offer. Raises IntegrityError where the disk has another one."""
        data = (self._folder / offer.code / "layer.zip").read_bytes()
        if sha256(data).hexdigest() != offer.code:
            raise IntegrityError(f"code {offer.code[:8]}: its file was changed; delete {self._folder / offer.code}")
        return data

    def unpack(self, code: OfferedCode, folder: Path) -> int:
        """Lay the files of a code out in the new folder `folder`, to be read; returns how many there are."""
        return unpack(self.layer(code.offer), folder)

    def _of(self, folder: Path) -> OfferedCode:
        offer = Offer.from_json((folder / "offer.json").read_bytes())
        since = datetime.fromtimestamp((folder / "layer.zip").stat().st_mtime, UTC)
        return OfferedCode(offer=offer, since=since, roster=self._approved(folder))

    def _approved(self, folder: Path) -> tuple[str, ...] | None:
        path = folder / "approved.json"
        return Approval.from_json(path.read_bytes()).roster if path.exists() else None

"""Owners of project names: the one repository, and the folder in it, whose line may call itself so in a store.

A claim is `projects/<name>.json`, signed like a record, written once and before the first record of its project.
`[projects]` of a site goes before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gangline.errors import IntegrityError
from gangline.git.repository_address import RepositoryAddress, address_of
from gangline.spec.codec import Document
from gangline.spec.record import Record
from gangline.storage.objects.protocol import Etag, ObjectStore, get_bounded

if TYPE_CHECKING:
    from gangline.signing.keys import PublicKey, SigningKey

OWN_STORE = "."
"""Repository of a claim in a store that lies inside of that repository: it may move, and get another remote."""
_PURPOSE = b"gangline project 1\n"
_MOST_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectClaim(Document):
    """`projects/<project>.json`: whose a project name is."""

    schema: int = 1
    project: str
    repository: str
    """Address of the repository, as `git.repository_address` writes it; `.`: the one that the store lies in."""
    folder: str = ""
    """Folder of line.toml in the repository; empty: its top."""
    earlier: tuple[str, ...] = ()
    """Addresses that the repository had before: records made under them are the project's."""
    time: str
    """UTC time of the last change."""
    key_id: str = ""
    """Key that signed the claim."""
    signature: str = ""
    """Signature, base64, over this document with an empty signature."""

    def signed(self, key: "SigningKey") -> "ProjectClaim":
        """This claim, signed by `key`."""
        claim = replace(self, key_id=key.key_id)
        return replace(claim, signature=key.sign(claim.signed_bytes))

    @property
    def signed_bytes(self) -> bytes:
        """Bytes that the signature covers."""
        return _PURPOSE + replace(self, signature="").to_json()


def claim_key(project: str) -> str:
    """Store key of the claim of a project name."""
    return f"projects/{project}.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectOwners:
    """Owners of the project names of a store, as its claims and the site say."""

    store: ObjectStore
    named: Mapping[str, Sequence[str]]
    """`[projects]` of the site: addresses by project."""
    keys: "Mapping[str, PublicKey]"
    """Keys whose claims count, by id."""

    def claim(self, project: str) -> tuple[ProjectClaim | None, Etag | None]:
        """The claim of a name, verified, and its version in the store; (None, None) where it has no claim.

        Raises:
            IntegrityError: It is no claim of that name, or no trusted key signed it.
        """
        key = claim_key(project)
        blob = get_bounded(self.store, key, most_bytes=_MOST_BYTES)
        if blob is None:
            return None, None
        claim = ProjectClaim.from_json(blob.data)
        if claim.project != project:
            raise IntegrityError(f"{key} is the claim of {claim.project}: someone copied it there")
        signer = self.keys.get(claim.key_id)
        if signer is None:
            raise IntegrityError(
                f"{key} is signed by key {claim.key_id[:64]}, trusted here: {', '.join(sorted(self.keys)) or 'none'};"
                " drivers of one store share sign.key, or name each other's keys in sign.identities"
            )
        signer.verify(claim.signature, claim.signed_bytes)
        return claim, blob.etag

    def site_addresses(self, project: str) -> frozenset[str]:
        """Addresses that the site gives a project name; empty: it says nothing of that name."""
        return frozenset(map(address_of, self.named.get(project, ())))

    def owner(self, project: str) -> "ProjectOwner | None":
        """The owner of a name: the site's word, else the claim's; None where neither says. Raises as `claim` does."""
        claim, _ = self.claim(project)
        earlier = frozenset((claim.repository, *claim.earlier) if claim else ())
        if named := self.site_addresses(project):
            return ProjectOwner(named, earlier)
        return ProjectOwner(frozenset((claim.repository,)), earlier) if claim else None

    def check(self, project: str, *, record: Record | None, address: RepositoryAddress | None) -> str:
        """One sentence on who owns `project`, once record and clone are of that repository.

        Args:
            project: Name of the project.
            record: Record of a run of it; None: only the clone is checked.
            address: Repository in which this is asked; None: it is not known, as in the pod of a task.

        Raises:
            IntegrityError: The owner is another repository, or not known.
        """
        if address is not None and address.holds(self.store.url) and project not in self.named:
            return f"{project}, in the store of its own repository"
        owner = self.owner(project)
        if owner is None:
            raise IntegrityError(
                f"the project {project} has no owner in {self.store.url}: gangline run in its repository claims the"
                f" name, or site.toml says whose it is: {how_to_name(project, 'HOST/PATH')}"
            )
        if address is not None and not owner.has_clone(address):
            raise IntegrityError(
                f"wanted a clone of {owner.text}, which owns the project {project}, found one of {address.text}"
            )
        made_by = record.commit.repository if record is not None else None
        if made_by is not None and not owner.has_record_of(made_by):
            raise IntegrityError(
                f"the project {project} belongs to {owner.text}, and the commit of this run came from {made_by}"
            )
        return f"{project} of {owner.text}"


@dataclass(frozen=True, slots=True)
class ProjectOwner:
    """The repository that owns a project name, by its addresses."""

    addresses: frozenset[str]
    earlier: frozenset[str] = frozenset()
    """Addresses under which records were made, those of today included."""

    @property
    def text(self) -> str:
        """The addresses, for a sentence."""
        shown = (
            "the repository in which this store lay" if address == OWN_STORE else address for address in self.addresses
        )
        return ", ".join(sorted(shown))

    def has_clone(self, address: RepositoryAddress) -> bool:
        """Whether a clone of that address may use the name."""
        return bool(self.addresses & address.names)

    def has_record_of(self, repository: str) -> bool:
        """Whether a record whose commit came from `repository` is the project's."""
        return bool({repository, OWN_STORE} & (self.addresses | self.earlier))


def how_to_name(project: str, address: str) -> str:
    """The lines of site.toml that give `project` to a repository."""
    return f'[projects] {project} = ["{address}"]'

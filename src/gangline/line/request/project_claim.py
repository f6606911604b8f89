"""Claim of a project name before a record is made, data is read or a key is derived: by every driver, in one place.

A name without an owner becomes that of the repository whose line has it, unless runs of another repository, or runs
that do not say of which, are in the store. Inside of a repository the default branch says which folder has which name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.git.repository_address import RepositoryAddress, read_address
from gangline.line.record.runs import list_runs
from gangline.registry.project_owner import OWN_STORE, ProjectClaim, ProjectOwner, ProjectOwners, claim_key, how_to_name
from gangline.signing.record_seal import Sealer
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.storage.objects.protocol import Etag, ObjectStore
from gangline.units import now

if TYPE_CHECKING:
    from gangline.line.request.run_request import RunRequest

_MOST_TRIES = 8


def project_owners(store: ObjectStore, site: Site, sealer: Sealer) -> ProjectOwners:
    """Owners of project names as drivers of `site` know them."""
    return ProjectOwners(store=store, named=site.projects, keys=sealer.trusted)


def claim_project(
    store: ObjectStore, request: "RunRequest", *, site: Site, sealer: Sealer, writes: bool = True
) -> RepositoryAddress:
    """Address of the repository of `request`, once it owns the name of its project.

    A name without an owner becomes its own, but not by a fork's commit, nor where `writes` is False.

    Raises:
        ConfigError: Another repository, or another folder of this one, owns the name; or it is not known whose the
            runs of that name are.
        IntegrityError: The claim is signed by no key that is trusted here.
    """
    address = read_address(request.repository.root)
    assert address is not None, request.repository.root
    line = _Line(request, address, project_owners(store, site, sealer), sealer)
    for _ in range(_MOST_TRIES):
        claim, etag = line.read_claim()
        if claim is None and request.trust == "fork":
            return address  # it uses nothing of the project, and its driver may not have the project's key
        wanted = line.next_claim(claim)
        if wanted == claim or not writes or request.trust == "fork":
            return address
        if _write(store, replace(wanted, time=now()).signed(sealer.key), etag):
            return address
    raise StorageError(f"{store.url}: {claim_key(line.project)} changes all the time; who else writes there?")


def require_claimable(store: ObjectStore, request: "RunRequest", *, site: Site, environ: Mapping[str, str]) -> None:
    """Raise ConfigError as `claim_project`, for a command that makes no run and writes nothing."""
    is_inside = store.url.startswith(f"file:{request.repository.work_tree}/")
    if not is_inside or request.line.project.name in site.projects:
        claim_project(store, request, site=site, sealer=Sealer.of(site, environ), writes=False)


def require_owned(
    store: ObjectStore, record: Record, *, site: Site, sealer: Sealer, repo: Path | None, claimed: bool = False
) -> str:
    """One sentence on the owner of the project, once an existing run is of that repository.

    Args:
        store: Store of the record.
        record: The run.
        site: Site of the driver.
        sealer: Its keys.
        repo: Folder in which the driver works, whose repository has to be the owner, too; None: it is not compared.
        claimed: A project without an owner is refused; otherwise the creation of its next run claims it.

    Raises:
        IntegrityError: The run, or that folder, is of another repository.
    """
    owners, project = project_owners(store, site, sealer), record.run.project
    if not claimed and owners.owner(project) is None:
        return f"{project} has no owner yet"
    return owners.check(project, record=record, address=None if repo is None else read_address(repo))


@dataclass(frozen=True, slots=True)
class _Line:
    """The line that wants a name."""

    request: "RunRequest"
    address: RepositoryAddress
    owners: ProjectOwners
    sealer: Sealer

    @property
    def project(self) -> str:
        return self.request.line.project.name

    @property
    def folder(self) -> str:
        return self.request.repository.prefix.strip("/")

    @property
    def is_in_own_store(self) -> bool:
        return self.address.holds(self.owners.store.url)

    def read_claim(self) -> tuple[ProjectClaim | None, Etag | None]:
        """The claim, which in a store of its own no stranger wrote: there one of a lost key is written again."""
        try:
            return self.owners.claim(self.project)
        except IntegrityError:
            entry = self.owners.store.get(claim_key(self.project))
            if entry is None or not self.is_in_own_store:
                raise
            return None, entry.etag

    def next_claim(self, claim: ProjectClaim | None) -> ProjectClaim:
        """The claim as it is to be; raises ConfigError where the name is another's."""
        named = self.owners.site_addresses(self.project)
        if claim is not None and claim.repository == OWN_STORE and not self.is_in_own_store:
            claim = None  # the store was copied out of its repository
        known = named or (frozenset((claim.repository,)) if claim else frozenset())
        if known and not known & {*self.address.names, *([OWN_STORE] if self.is_in_own_store else [])}:
            raise self._foreign(ProjectOwner(known))
        if not known and not self.is_in_own_store:
            self._require_own_runs()
        self._require_own_folder(claim)
        own = OWN_STORE if self.is_in_own_store else self.address.text
        if claim is None:
            return ProjectClaim(project=self.project, repository=own, folder=self.folder, time="")
        if claim.repository in (named or {own}):
            return replace(claim, folder=self.folder)
        earlier = tuple(sorted({claim.repository, *claim.earlier} - {own, OWN_STORE}))
        return replace(claim, repository=own, folder=self.folder, earlier=earlier)

    def _require_own_runs(self) -> None:
        """Raise ConfigError if a run of this name is not known to be of this repository."""
        project, url = self.project, self.owners.store.url
        for record in list_runs(self.owners.store, project=project):
            made_by = record.commit.repository if self.sealer.holds(record) else None
            if made_by in self.address.names:
                continue
            whose = f"of {made_by}" if made_by else "which does not say of which repository it is"
            raise ConfigError(
                f"project.name: wanted a name of this repository, {self.address.text}, found {project!r}, of which"
                f" {url} has {record.run.id}, {whose}; give this line another name, or, if those runs are of this"
                f" repository, write into site.toml: {how_to_name(project, self.address.text)}"
            )

    def _foreign(self, owner: ProjectOwner) -> ConfigError:
        return ConfigError(
            f"project.name: wanted a name of this repository, {self.address.text}, found {self.project!r}, which"
            f" belongs to {owner.text} in {self.owners.store.url}; give this line another name, or, if the project has"
            f" moved here, write into site.toml: {how_to_name(self.project, self.address.text)}"
        )

    def _require_own_folder(self, claim: ProjectClaim | None) -> None:
        """Raise ConfigError if the name is that of a line in another folder, by the claim and the default branch."""
        is_ruled = self.request.protection.project == self.project
        if (is_ruled and claim is None) or (claim is not None and claim.folder == self.folder):
            return
        folders = self._folders()
        others = [claim.folder] if claim and not (is_ruled and claim.folder not in folders) else []
        if claim is None:
            others = [folder for folder in folders if folder != self.folder]
        if others:
            raise ConfigError(
                f"project.name: {self.project!r} is the name of the line in {others[0] or 'the top folder'} of this"
                f" repository, found it in {self.folder or 'the top folder'}; give each line of a repository its own"
                " name, or move the line on the default branch"
            )

    def _folders(self) -> list[str]:
        """Folders whose line has the name at the tip of the default branch."""
        from gangline.line.request.branch_protection import named_folders  # a task of a pipeline reads no line

        branch = self.request.protection.branch
        return [] if branch is None else named_folders(self.request.repository, branch, self.project)


def _write(store: ObjectStore, claim: ProjectClaim, etag: Etag | None) -> bool:
    """Write the claim unless another driver changed it since; after a lost answer it is read again."""
    key, data = claim_key(claim.project), claim.to_json()
    return (store.put_if_absent(key, data) if etag is None else store.compare_and_set(key, data, etag)) is not None

"""Where an order's commits are: a repository on a forge, or one of this machine that the site names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from gangline.errors import ConfigError
from gangline.forge.protocol import Forge, RefHead
from gangline.git.clones import Clones
from gangline.git.mirror import RemoteBranches
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.database.types import Order
from gangline.spec.config.secrets import resolve_secret


@dataclass(frozen=True, slots=True)
class CommitSource:
    """One repository."""

    project: str
    url: str
    clone: str
    """Name of its clone."""
    repository: str
    forge: Forge | None = None
    token: str | None = None
    """Reference to what the forge knows us by; read when it is needed, so that it may change."""
    environ: Mapping[str, str] = field(default_factory=dict)
    named_by_site: bool = False
    """The site names the forge's server by URL: it may be on a private network."""

    def head(self, clones: Clones, ref: str) -> RefHead | None:
        """The commit of `ref`; None if it does not exist."""
        if self.forge is not None:
            return self.forge.head(self.repository, ref)
        commit = self._branches(clones).get(ref)
        return None if commit is None else RefHead(commit=commit, branch=_branch(ref))

    def heads(self, clones: Clones) -> list[tuple[str, RefHead]]:
        """Every branch and open pull request."""
        if self.forge is not None:
            return self.forge.heads(self.repository)
        found = self._branches(clones)
        return [(ref, RefHead(commit=commit, branch=_branch(ref))) for ref, commit in found.items()]

    def fetch(self, clones: Clones, *refs: str) -> None:
        """Fetch the commits of `refs` into the clone.

        Raises:
            ConfigError: The token's reference leads nowhere.
            StorageError: The other side is away, or has no such ref.
        """
        clones.fetch(self.url, name=self.clone, refs=refs, credential=self._credential(), **self._server)

    def branch_state(self, clones: Clones, branch: str | None, commit: str) -> RemoteBranches:
        """The default branch, which is fetched, and `branch`, which is at `commit`. Raises as `fetch`."""
        default = clones.fetch_default_branch(self.url, name=self.clone, credential=self._credential(), **self._server)
        own = {} if branch is None else {branch: commit}
        return RemoteBranches(None, own) if default is None else RemoteBranches(default[0], own | dict([default]))

    def fetch_model_tags(self, clones: Clones) -> None:
        """Tags of models that others have published: their numbers are taken. Raises as `fetch`."""
        clones.fetch_model_tags(self.url, name=self.clone, credential=self._credential(), **self._server)

    def push_model_tags(self, clones: Clones) -> None:
        """Tags of models that were published in the clone. Raises as `fetch`, or where a name is taken."""
        clones.push_model_tags(self.url, name=self.clone, credential=self._credential(), **self._server)

    @property
    def _server(self) -> dict[str, bool]:
        return {"local": self.forge is None, "named_by_site": self.named_by_site}

    def _credential(self) -> str | None:
        return resolve_secret(self.token, self.environ) if self.token else None

    def _branches(self, clones: Clones) -> Mapping[str, str]:
        return clones.heads(self.url, local=True)


def source_of(context: ServiceContext, order: Order) -> CommitSource:
    """Where an order's ref is.

    Raises:
        ConfigError: The site names it no more.
    """
    if order.forge is None:
        path = context.site.serve.repositories.get(order.project)
        if path is None:
            raise ConfigError(f"serve.repositories names no {order.project} (any more)")
        return _local(order.project, path)
    table, forge = context.site.forge.get(order.forge), context.forges.get(order.forge)
    if table is None or forge is None:
        raise ConfigError(f"the site names no forge {order.forge} (any more)")
    if order.project not in table.projects.values():
        raise ConfigError(f"forge.{order.forge}.projects names no {order.project} (any more)")
    return _on_forge(context, forge, order.project, order.repository)


def all_sources(context: ServiceContext) -> list[CommitSource]:
    """Every repository that the site builds."""
    own = [_local(project, path) for project, path in context.site.serve.repositories.items()]
    claimed = [
        _on_forge(context, forge, project, repository)
        for name, forge in context.forges.items()
        for repository, project in context.site.forge[name].projects.items()
    ]
    return own + claimed


def _local(project: str, path: str) -> CommitSource:
    whole = str(Path(path).expanduser().absolute())
    return CommitSource(project=project, url=whole, clone=_clone_name(project, whole), repository=project)


def _on_forge(context: ServiceContext, forge: Forge, project: str, repository: str) -> CommitSource:
    return CommitSource(
        project=project,
        url=forge.clone_url(repository),
        clone=_clone_name(project, f"{forge.name} {repository.casefold()}"),
        repository=repository,
        forge=forge,
        token=context.site.forge[forge.name].token,
        environ=context.environ,
        named_by_site=context.site.forge[forge.name].url is not None,
    )


def _clone_name(project: str, place: str) -> str:
    return f"{project}-{sha256(place.encode()).hexdigest()[:10]}"


def _branch(ref: str) -> str | None:
    return ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else None

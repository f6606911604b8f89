"""A repository on a real Gitea, an account that speaks for gangline, a workspace that drives what was pushed there."""

from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

import pytest
from tests.line import repositories
from tests.line.conftest import Workspace
from tests.line.repositories import git

from gangline.spec.config.site import ForgeTable, ServeTable, Site

SCOPES = ("write:repository", "write:issue", "read:user")
SECRET = "hush"
RUN_PAGES = "https://runs.example.org"


@dataclass
class Place:
    """One repository on the forge, `owner/project`."""

    gitea: object
    owner: str
    bot: str
    token: str
    project: str = "cheap"

    @property
    def repository(self) -> str:
        return f"{self.owner}/{self.project}"

    @property
    def path(self) -> str:
        return f"/repos/{self.repository}"

    def site(self, **table) -> Site:
        ours = ForgeTable(
            kind="gitea", url=self.gitea.url, projects={self.repository: self.project},
            token="secret:env:FORGE_TOKEN", hook_secret="secret:env:HOOK_SECRET",
        )  # fmt: skip
        return Site(forge={"ours": replace(ours, **table)}, serve=ServeTable(public_url=RUN_PAGES))

    @property
    def environ(self) -> dict[str, str]:
        return {"FORGE_TOKEN": self.token, "HOOK_SECRET": SECRET}

    def push(self, repo: Path, refspec: str = "main", *, user: str | None = None, to: str | None = None) -> None:
        git(repo, "push", "--quiet", "--force", self.gitea.push_url(to or self.repository, user or self.owner), refspec)

    def open_pull(self, head: str, *, user: str | None = None) -> int:
        return self.gitea.open_pull(self.repository, head, user=user or self.owner)

    def statuses(self, commit: str) -> dict[str, tuple[str, str, str]]:
        """Newest (state, description, url) by context."""
        found = self.gitea.call("GET", f"{self.path}/commits/{commit}/status") or {}
        return {s["context"]: (s["status"], s["description"], s["target_url"]) for s in found.get("statuses") or []}

    def hook_to(self, url: str) -> None:
        events = ["push", "pull_request", "pull_request_sync", "delete"]
        config = {"url": url, "content_type": "json", "secret": SECRET}
        body = {"type": "gitea", "active": True, "events": events, "config": config}
        self.gitea.call("POST", f"{self.path}/hooks", body, user=self.owner)

    def give_label(self, pull_request: int, name: str) -> None:
        label = self.gitea.call("POST", f"{self.path}/labels", {"name": name, "color": "#00aabb"}, user=self.owner)
        body = {"labels": [label["id"]]}
        self.gitea.call("POST", f"{self.path}/issues/{pull_request}/labels", body, user=self.owner)

    def comments(self, pull_request: int) -> list[dict]:
        return self.gitea.call("GET", f"{self.path}/issues/{pull_request}/comments") or []


@pytest.fixture
def place(gitea):
    return make_place(gitea)


def make_place(gitea, project: str = "cheap") -> Place:
    """A repository of somebody new, to which an account of ours may write."""
    owner, bot = f"ann-{token_hex(3)}", f"bot-{token_hex(3)}"
    gitea.add_user(owner)
    gitea.add_user(bot)
    gitea.call("POST", "/user/repos", {"name": project, "default_branch": "main"}, user=owner)
    gitea.call("PUT", f"/repos/{owner}/{project}/collaborators/{bot}", {"permission": "write"}, user=owner)
    return Place(gitea, owner, bot, gitea.token(bot, *SCOPES), project)


@pytest.fixture
def pushed(place, tmp_path):
    """A workspace whose repository stands on the forge."""
    repo = repositories.make_repository(tmp_path / "repo")
    place.push(repo)
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    return Workspace(repo, place.site(), home | place.environ)

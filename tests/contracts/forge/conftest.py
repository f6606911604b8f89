"""Every forge over a small world: GitHub and GitLab as stubs of their routes, Gitea as itself."""

import contextlib
import time
import urllib.error
from hashlib import sha1
from secrets import token_hex
from urllib.parse import quote

import pytest
from tests.contracts.forge.stub import BOT, STRANGER, Stub
from tests.line import repositories
from tests.line.repositories import commit, git

from gangline.forge.factory import open_forges
from gangline.spec.config.site import ForgeTable, Site

SECRET, TOKEN = "hush", "t0ken"


def forge_of(kind, url, token=TOKEN, **options):
    table = ForgeTable(kind=kind, url=url, token="secret:env:T", hook_secret="secret:env:H")
    return open_forges(Site(forge={"ours": table}), {"T": token, "H": SECRET}, **options)["ours"]


class Stubbed:
    """The world of a stub."""

    def __init__(self, kind):
        self.stub = Stub(kind)
        self.repository = self.stub.world.repository
        self.forge = forge_of(kind, self.stub.url)
        self._pulls = 0

    def push(self, branch):
        self.stub.world.branches[branch] = sha = sha1(token_hex(4).encode()).hexdigest()
        return sha

    def delete_branch(self, branch):
        del self.stub.world.branches[branch]

    def open_pull(self, branch, *, fork=False):
        self._pulls += 1
        sha = self.push(branch)
        if fork:
            self.delete_branch(branch)
        self.stub.world.pulls[self._pulls] = {"sha": sha, "branch": branch, "fork": fork, "state": "open"}
        self.stub.world.files[self._pulls] = [("model.py", "model.py")]
        return self._pulls, sha

    def close_pull(self, number):
        self.stub.world.pulls[number]["state"] = "closed"

    def statuses(self, sha):
        return [status for commit, status in self.stub.world.statuses if commit == sha]

    def comments(self, number):
        """(id, is ours, text)."""
        found = self.stub.world.comments.values()
        return [(each["id"], each["author"] == BOT, each["body"]) for each in found if each["pull"] == number]

    def comment_as_stranger(self, number, text):
        made = {"id": next(self.stub.world.ids), "pull": number, "author": STRANGER, "body": text}
        self.stub.world.comments[made["id"]] = made

    def comment_as_us(self, number, text):
        made = {"id": next(self.stub.world.ids), "pull": number, "author": BOT, "body": text}
        self.stub.world.comments[made["id"]] = made

    def delete_comment(self, comment):
        del self.stub.world.comments[comment]

    def with_token(self, token):
        self.stub.fail(*([self.refusal] * 9))
        return self.forge

    @property
    def refusal(self):
        from tests.contracts.forge.stub import Failure

        return Failure(403, body=b'{"message": "Resource not accessible by personal access token"}')


class Real:
    """One repository on a real Gitea; every test makes its own pull requests there."""

    def __init__(self, gitea, folder):
        self.gitea, self.name = gitea, f"tiny-{token_hex(3)}"
        for person in ("owner", "bot", "forker"):
            gitea.add_user(person)
        gitea.call("POST", "/user/repos", {"name": self.name, "default_branch": "main"}, user="owner")
        self.repository = f"owner/{self.name}"
        self._path = f"/repos/{self.repository}"
        gitea.call("PUT", f"{self._path}/collaborators/bot", {"permission": "write"}, user="owner")
        self.forge = self.with_token(gitea.token("bot", "write:repository", "write:issue", "read:user"))
        self.repo = repositories.make_repository(folder, {"model.py": "1\n"})
        self._to("owner", "main")

    def with_token(self, token):
        return forge_of("gitea", self.gitea.url, token)

    def _to(self, user, refspec):
        git(self.repo, "push", "--quiet", "--force", self.gitea.push_url(f"{user}/{self.name}", user), refspec)
        if not refspec.startswith(":"):
            self._await(user, refspec.removeprefix("HEAD:refs/heads/"), git(self.repo, "rev-parse", "HEAD"))

    def _await(self, user, branch, sha):
        """Gitea takes a push in before it has learned of its branch."""
        for _ in range(200):
            with contextlib.suppress(urllib.error.HTTPError):
                found = self.gitea.call("GET", f"/repos/{user}/{self.name}/branches/{quote(branch, safe='')}")
                if found["commit"]["id"] == sha:
                    return
            time.sleep(0.05)
        raise AssertionError(f"{branch} never came to {user}/{self.name}")

    def push(self, branch):
        sha = commit(self.repo, {"model.py": token_hex(4) + "\n"})
        self._to("owner", f"HEAD:refs/heads/{branch}")
        return sha

    def delete_branch(self, branch):
        self._to("owner", f":refs/heads/{branch}")

    def open_pull(self, branch, *, fork=False):
        owner, branch = "forker" if fork else "owner", f"{branch}-{token_hex(3)}"
        if fork:
            self.gitea.call("POST", f"{self._path}/forks", {}, user=owner)
        sha = commit(self.repo, {"model.py": token_hex(4) + "\n"})
        self._to(owner, f"HEAD:refs/heads/{branch}")
        return self.gitea.open_pull(self.repository, f"{owner}:{branch}" if fork else branch, user=owner), sha

    def close_pull(self, number):
        self.gitea.call("PATCH", f"{self._path}/pulls/{number}", {"state": "closed"}, user="owner")

    def statuses(self, sha):
        found = self.gitea.call("GET", f"{self._path}/commits/{sha}/statuses?sort=oldest")
        found.sort(key=lambda each: each["id"])
        return [{"context": s["context"], "state": s["status"], "said": s["description"]} for s in found]

    def comments(self, number):
        found = self.gitea.call("GET", f"{self._path}/issues/{number}/comments") or []
        return [(each["id"], each["user"]["login"] == "bot", each["body"]) for each in found]

    def comment_as_stranger(self, number, text):
        self.gitea.call("POST", f"{self._path}/issues/{number}/comments", {"body": text}, user="owner")

    def comment_as_us(self, number, text):
        self.gitea.call("POST", f"{self._path}/issues/{number}/comments", {"body": text}, user="bot")

    def delete_comment(self, comment):
        self.gitea.call("DELETE", f"{self._path}/issues/comments/{comment}", user="owner")


@pytest.fixture(scope="session")
def real(gitea, tmp_path_factory):
    return Real(gitea, tmp_path_factory.mktemp("real") / "repo")


@pytest.fixture(params=["github", "gitlab", pytest.param("gitea", marks=pytest.mark.tools)])
def world(request):
    if request.param == "gitea":
        yield request.getfixturevalue("real")
        return
    made = Stubbed(request.param)
    yield made
    made.stub.close()

"""Which sandbox a commit's code gets, by its trust, the site and the user; what is hidden, and what is said of it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.line import repositories

from gangline.errors import ConfigError, IntegrityError, TrainingError
from gangline.launch.sandbox import find_engine
from gangline.launch.sandbox.engines import OtherUser, Unconfined
from gangline.line.gangs import sandbox as sandboxes
from gangline.line.gangs.sandbox import hidden_path_in, sandbox_of
from gangline.line.request.run_request import CommitOrigin
from gangline.line.request.trust import KeptHome
from gangline.spec.config.site import ForgeTable, SandboxTable, ServeTable, Site, StoreTable

FORK = CommitOrigin(branch="their-idea", pull_request=7, trust="fork")
OFF = Site(sandbox=SandboxTable(mode="off"))
REQUIRED = Site(sandbox=SandboxTable(mode="required"))
needs_engine = pytest.mark.skipif(
    not find_engine("auto", wide=True).hides, reason="needs bubblewrap: apt-get install bubblewrap"
)


@pytest.fixture
def nothing_works(monkeypatch):
    monkeypatch.setattr(sandboxes, "find_engine", lambda *_, **__: Unconfined("bubblewrap is not installed"))


def test_what_belongs_to_user_repository_and_site_is_hidden(tmp_path):
    repo = repositories.make_repository(tmp_path / "clones" / "team" / "commits" / "abc")
    for name in ("home", "kube", "secret", "other", "keys"):
        (tmp_path / name).mkdir()
    site = Site(
        store=StoreTable(url=f"file:{tmp_path / 'store'}"),
        forge={"ours": ForgeTable(kind="gitea", token=f"secret:file:{tmp_path / 'secret' / 'token'}")},
        serve=ServeTable(repositories={"other": str(tmp_path / "other")}),
    )
    environ = {
        "HOME": str(tmp_path / "home"), "KUBECONFIG": str(tmp_path / "kube" / "config"), "XDG_CONFIG_HOME": "/etc",
        "DEPLOY_KEY": str(tmp_path / "keys" / "key"), "API_TOKEN": "/", "SOME_PATH": "/usr",
        "GANGLINE_SITE": str(tmp_path / "site.toml"),
    }  # fmt: skip
    found = set(sandbox_of(repo, "fork", site=site, environ=environ).hidden)
    assert found >= {
        tmp_path, tmp_path / "home", tmp_path / "kube", tmp_path / "store", tmp_path / "serve", repo / ".git",
        repo / ".gangline", tmp_path / "secret", tmp_path / "other", tmp_path / "keys", tmp_path / "site.toml",
    }  # fmt: skip
    assert found.isdisjoint({Path("/"), Path("/usr"), Path("/etc")}), (
        "a folder of the system stays; what is private in it is known by its name"
    )


def test_of_a_work_tree_the_repository_behind_it_is_hidden(tmp_path):
    repo = repositories.make_repository(tmp_path / "repo")
    repositories.git(repo, "worktree", "add", "--quiet", str(tmp_path / "tree"))
    found = sandbox_of(tmp_path / "tree", "own", site=Site(), environ={}).hidden
    assert repo / ".git" in found


def test_own_code_sees_what_the_site_shows_and_a_forks_does_not(tmp_path):
    repo = repositories.make_repository(tmp_path / "repo")
    site = Site(sandbox=SandboxTable(read=("/srv/data",)))
    own, fork = (sandbox_of(repo, trust, site=site, environ={}) for trust in ("own", "fork"))
    assert own.shown == (Path("/srv/data"),)
    scratch = {"tmp": tmp_path, "write": (tmp_path,)}
    assert Path("/srv/data") in own.view(**scratch).read
    assert Path("/srv/data") not in fork.view(**scratch).read
    assert (own.view(**scratch).wide, own.view(**scratch).network) == (True, True)
    assert (fork.view(**scratch).wide, fork.view(**scratch).network) == (False, False)


@needs_engine
def test_a_home_is_kept_by_branch_and_by_whether_its_runs_may_be_published(tmp_path):
    repo = repositories.make_repository(tmp_path / "repo")
    homes = [KeptHome(branch=name, may_publish=may) for name in ("main", "a/b", "a-b", None) for may in (True, False)]
    found = [sandbox_of(repo, "own", site=Site(), environ={}, home=each).home for each in homes]
    assert len(set(found)) == len(homes)
    assert all(each.parents[1] == repo / ".gangline" / "home" for each in found)
    assert sandbox_of(repo, "own", site=Site(), environ={}).home is None
    empty = Site(sandbox=SandboxTable(home="empty"))
    assert sandbox_of(repo, "own", site=empty, environ={}, home=homes[0]).home is None


@pytest.mark.parametrize("name", ["../../x", "/etc", "..", "a" * 300, "\n\x1b[2J", "\ud800", ""])
def test_a_home_of_a_branch_stays_in_its_folder(name):
    path = KeptHome(branch=name, may_publish=True).path
    assert len(path.parts) == 2
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", path.parts[0])


def test_where_other_own_commits_may_write_a_run_that_may_be_published_begins_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(sandboxes, "find_engine", lambda *_, **__: OtherUser(65532))
    repo = repositories.make_repository(tmp_path / "repo")
    homes = [KeptHome(branch="main", may_publish=may) for may in (True, False)]
    published, other = (sandbox_of(repo, "own", site=Site(), environ={}, home=each).home for each in homes)
    assert (published, other.name) == (None, "other")


@pytest.mark.parametrize("shown", ["", "a", ".gangline", ".git"])
def test_nothing_with_a_secret_in_it_is_shown(tmp_path, shown):
    home = tmp_path / "a" / "home"
    home.mkdir(parents=True)
    repo = repositories.make_repository(tmp_path / "a" / "repo")
    path = tmp_path / shown if shown in ("", "a") else repo / shown
    with pytest.raises(ConfigError, match="wanted folders without secrets"):
        sandbox_of(repo, "own", site=Site(sandbox=SandboxTable(read=(str(path),))), environ={"HOME": str(home)})


def test_without_an_engine_own_code_runs_and_the_plan_says_so_once(workspace, nothing_works):
    record = workspace.run()
    said = [event for event in record.events if event.kind == "sandbox"]
    assert record.run.verdict == "passed"
    assert [event.stage for event in said] == ["plan"]
    assert said[0].text.startswith("sandbox: none: bubblewrap is not installed; model code runs as this user and may")
    assert said[0].text.endswith("keys included; commits of forks are refused; apt install bubblewrap")


@needs_engine
def test_with_an_engine_nothing_is_said(workspace):
    assert [event for event in workspace.run().events if event.kind == "sandbox"] == []


@pytest.mark.parametrize(("site", "whose"), [(OFF, "fork"), (Site(), "fork"), (REQUIRED, "own")])
def test_without_an_engine_what_may_not_run_is_refused(workspace, nothing_works, site, whose):
    workspace.site = site
    with pytest.raises(IntegrityError, match="wanted a sandbox for the model code of") as raised:
        workspace.run(**{"origin": FORK} if whose == "fork" else {})
    assert workspace.records()[0].stages["plan"].state == "failed", "before anybody is asked to approve it"
    assert str(raised.value).endswith("found none: bubblewrap is not installed; apt install bubblewrap")
    assert not list((workspace.repo / ".gangline" / "gangs").glob("*/launch.json"))


def test_switched_off_it_is_as_if_there_were_none(workspace):
    workspace.site = OFF
    record = workspace.run()
    assert any("sandbox.mode = off in site.toml" in event.text for event in record.events)


@needs_engine
def test_a_program_that_misses_a_hidden_path_is_shown_how_it_is_shown(workspace, tmp_path):
    (tmp_path / "data.txt").write_text("words")
    repositories.commit(workspace.repo, {"answer.py": f"print(open({str(tmp_path / 'data.txt')!r}).read())"})
    with pytest.raises(TrainingError, match=r"data.txt exists but is hidden from model code: sandbox.read in"):
        workspace.run()
    sandbox = sandbox_of(workspace.repo, "own", **workspace.where)
    assert hidden_path_in(["FileNotFoundError: [Errno 2] No such file: '/no/such/file'"], sandbox) == ""
    assert hidden_path_in([f"FileNotFoundError: '{tmp_path}'"], replace(sandbox, trust="fork")) == ""


@needs_engine
def test_what_the_site_shows_is_read(workspace, tmp_path):
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "data.txt").write_text("words")
    program = f"assert open({str(tmp_path / 'shown' / 'data.txt')!r}).read() == 'words'\n"
    repositories.commit(workspace.repo, {"answer.py": program + repositories.PROGRAM})
    workspace.site = Site(sandbox=SandboxTable(read=(str(tmp_path / "shown"),)))
    assert workspace.run().run.verdict == "passed"

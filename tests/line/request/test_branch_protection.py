"""Rules of a line come from the default branch, and a branch publishes only where git and that line say so."""

import os
import time

import pytest
from tests.line import repositories
from tests.line.records import new_sealer

from gangline.errors import ConfigError, UsageError
from gangline.git import origin_branch
from gangline.git.repository import Repository
from gangline.line.request.branch_protection import is_protected, read_protection
from gangline.line.request.run_request import CommitOrigin, resolve_request
from gangline.line.run.create import find_or_create_run
from gangline.registry.publish_rules import unpublishable_reason
from gangline.spec.config.site import Site
from gangline.storage.folder.store import FolderStore

GATES = repositories.LINE + '[[gate.quality]]\nmetric = "loss"\nbetter = "lower"\nlimit = 2.5\n'
LAX = repositories.LINE + '[publish]\nmodel = "other"\nbranches = ["**"]\n[data]\nholdout = 0.01\n'


@pytest.fixture
def repo(tmp_path):
    return repositories.make_repository(
        tmp_path / "repo", {"line.toml": GATES, "answer.py": repositories.PROGRAM}
    )  # fmt: skip


def on_branch(repo, name, files):
    repositories.git(repo, "checkout", "--quiet", "-b", name)
    return repositories.commit(repo, files)


def question(repo, **more):
    return resolve_request(repo, **{"commit": None, "overrides": (), "strategy": None} | more)


def cloned(repo, folder, *more):
    repositories.git(repo.parent, "clone", "--quiet", *more, str(repo), str(folder))
    return folder


def fetched(repo, folder, *more):
    """As a build server does it."""
    repositories.git(repo.parent, "init", "--quiet", str(folder))
    repositories.git(folder, "remote", "add", "origin", str(repo))
    repositories.git(folder, "fetch", "--quiet", "origin", *more, "+refs/heads/*:refs/remotes/origin/*")
    return folder


def test_a_commit_of_the_default_branch_is_protected_and_has_its_own_rules(repo):
    found = question(repo)
    assert (found.protected, found.rules, found.rules_problem) == (True, None, "")
    assert found.line.gate.quality[0].limit == 2.5


def test_a_commit_of_another_branch_is_judged_by_the_default_branch(repo):
    tip = repositories.git(repo, "rev-parse", "main")
    on_branch(repo, "feature", {"line.toml": LAX})
    found = question(repo)
    assert (found.branch, found.protected, found.rules) == ("feature", False, tip)
    assert [gate.limit for gate in found.line.gate.quality] == [2.5]
    assert (found.line.publish.branches, found.line.publish.model, found.line.data.holdout) == (("main",), None, 0.1)


def test_whatever_a_branch_is_called_git_decides(repo):
    sha = on_branch(repo, "feature", {"line.toml": LAX})
    asked = question(repo, commit=sha, origin=CommitOrigin(branch="main"))
    assert (asked.branch, asked.protected) == ("main", False)
    assert asked.line.publish.branches == ("main",)


def test_once_merged_the_same_commit_is_another_question_with_its_own_rules(repo):
    sha = on_branch(repo, "feature", {"line.toml": LAX})
    before = question(repo, commit=sha)
    repositories.git(repo, "checkout", "--quiet", "main")
    repositories.git(repo, "merge", "--quiet", "--ff-only", "feature")
    after = question(repo, commit=sha)
    assert (before.protected, after.protected) == (False, True)
    assert after.line.publish.branches == ("**",)
    assert before.run_id(1) != after.run_id(1)


def test_an_older_commit_of_the_default_branch_stays_the_question_it_was(repo):
    before = question(repo)
    repositories.commit(repo, {"README.md": "words"})
    assert question(repo, commit=before.commit).run_id(1) == before.run_id(1)


def test_branches_that_the_default_branch_lets_publish_are_protected_too(repo):
    repositories.commit(repo, {"line.toml": GATES + '[publish]\nbranches = ["main", "release/*"]\n'})
    on_branch(repo, "release/1", {"README.md": "words"})
    assert question(repo).protected
    on_branch(repo, "feature", {"README.md": "more words"})
    assert not question(repo).protected


def test_a_fork_is_never_protected_and_has_the_rules_of_the_default_branch(repo):
    sha = repositories.git(repo, "rev-parse", "HEAD")
    asked = question(repo, commit=sha, origin=CommitOrigin(branch="main", trust="fork"))
    assert (asked.protected, asked.rules) == (False, sha)


def test_a_dirty_tree_is_judged_by_itself_and_is_not_protected(repo):
    (repo / "line.toml").write_text(LAX)
    found = question(repo)
    assert (found.is_dirty, found.protected, found.rules) == (True, False, None)
    assert found.line.publish.model == "other"


def test_overrides_win_over_the_rules_and_are_remembered(repo):
    on_branch(repo, "feature", {"README.md": "words"})
    asked = question(repo, overrides=("gate.quality=[]",), strategy="ddp")
    assert asked.line.gate.quality == ()
    assert asked.overrides == ("gate.quality=[]", 'train.strategy="ddp"')


def test_a_clone_knows_the_default_branch_of_its_origin(repo, tmp_path):
    repositories.git(repo, "checkout", "--quiet", "-b", "trunk")
    clone = Repository.at(cloned(repo, tmp_path / "clone"))
    assert clone.default_branch().name == "trunk"
    assert clone.default_branch().ref == "refs/remotes/origin/trunk"


def test_a_build_servers_checkout_knows_the_default_branch_by_the_commit_of_head(repo, tmp_path):
    """It is made by a fetch; another branch with a usual name is not taken for it."""
    repositories.git(repo, "branch", "--quiet", "-m", "main", "trunk")
    checkout = fetched(repo, tmp_path / "checkout", "+HEAD:refs/gangline/default")
    assert Repository.at(checkout).default_branch().name == "trunk"
    sha = on_branch(repo, "master", {"line.toml": LAX})
    repositories.git(repo, "checkout", "--quiet", "trunk")
    repositories.git(checkout, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/master")
    assert Repository.at(checkout).default_branch().name == "trunk"
    checkout = fetched(repo, tmp_path / "again", "+HEAD:refs/gangline/default")
    assert Repository.at(checkout).default_branch().name == "trunk"
    repositories.git(checkout, "checkout", "--quiet", "--detach", sha)
    assert [gate.limit for gate in question(checkout).line.gate.quality] == [2.5]


def test_of_two_branches_that_may_be_the_default_one_none_is(repo, tmp_path):
    repositories.git(repo, "branch", "--quiet", "-m", "main", "master")
    assert Repository.at(fetched(repo, tmp_path / "checkout")).default_branch().name == "master"
    on_branch(repo, "main", {"line.toml": LAX})
    assert Repository.at(fetched(repo, tmp_path / "again")).default_branch() is None


def test_a_clone_that_lacks_the_default_branch_publishes_nothing_and_says_why(repo, tmp_path):
    on_branch(repo, "feature", {"line.toml": LAX})
    repositories.git(repo, "branch", "--quiet", "-m", "main", "trunk")
    clone = cloned(repo, tmp_path / "clone", "--single-branch", "--branch", "feature")
    for gone in ("refs/remotes/origin/HEAD", "refs/remotes/origin/feature"):  # as a build server's checkout has it
        repositories.git(clone, "update-ref", "--no-deref", "-d", gone)
        found = question(clone)
        assert not found.protected
        assert "git fetch origin" in found.rules_problem


@pytest.mark.parametrize("text", [None, "[project]\nname = 3\n", "no toml at all ["])
def test_a_default_branch_without_a_line_lets_no_branch_publish_itself(repo, text):
    git = repositories.git
    git(repo, "rm", "--quiet", "line.toml")
    repositories.commit(repo, {"README.md": "words"} | ({} if text is None else {"line.toml": text}))
    on_branch(repo, "feature", {"line.toml": LAX})
    found = question(repo)
    assert (found.protected, found.rules) == (False, None)
    assert found.rules_problem.startswith("on main")
    assert found.protection.lacks_line is (text is None)


def test_a_line_that_origin_lacks_is_the_reason_at_birth_and_at_publication(repo, tmp_path):
    repositories.git(repo, "rm", "--quiet", "line.toml")
    repositories.commit(repo, {"README.md": "words"})
    repositories.git(repo, "branch", "--move", "main", "master")
    clone = cloned(repo, tmp_path / "clone")
    repositories.commit(clone, {"line.toml": GATES + '[publish]\nbranches = ["master"]\n'})
    store = FolderStore(tmp_path / "store")
    record = find_or_create_run(
        store, question(clone), again=False, target="local", site=Site(), sealer=new_sealer()
    ).record
    said = (
        "nothing is published: on origin/master, the default branch, there is no line.toml yet; push a commit with one"
    )
    assert record.events[0].text.startswith(said)
    assert record.events[0].stage == "publish", "a first run does not begin with it"
    assert unpublishable_reason(record) == record.events[0].text
    repositories.git(clone, "update-ref", "refs/remotes/origin/master", "HEAD")  # as git push leaves it
    assert question(clone).protected


def test_a_line_that_does_not_hold_under_the_rules_is_refused(repo):
    on_branch(repo, "feature", {"line.toml": "data = 3\n" + repositories.LINE})
    with pytest.raises(ConfigError, match="data"):
        question(repo)


def test_history_that_never_met_the_default_branch_is_not_part_of_it(repo):
    repositories.git(repo, "checkout", "--quiet", "--orphan", "main2")
    sha = repositories.commit(repo, {"line.toml": LAX})
    found = Repository.at(repo)
    assert not is_protected(found, sha, read_protection(found))


def test_a_default_branch_that_publish_branches_does_not_name_is_named(repo, tmp_path):
    repositories.git(repo, "branch", "--move", "main", "master")
    asked = question(repo)
    assert (asked.protected, asked.rules) == (False, asked.commit)
    record = find_or_create_run(
        FolderStore(tmp_path / "store"), asked, again=False, target="local", site=Site(), sealer=new_sealer()
    ).record
    assert [each.text for each in record.events] == [
        "nothing is published from here: publish.branches names main, not the default branch"
    ]


# a branch that a driver names


@pytest.fixture
def pushed(repo, tmp_path):
    """A clone of a bare repository, at the tip of its main."""
    repositories.git(tmp_path, "clone", "--quiet", "--bare", str(repo), "bare.git")
    repositories.git(tmp_path, "clone", "--quiet", str(tmp_path / "bare.git"), "clone")
    return tmp_path / "clone"


def named(clone, branch, **more):
    return question(clone, commit="HEAD", origin=CommitOrigin(branch=branch), **more)


@pytest.mark.row("P5")
@pytest.mark.parametrize("branch", ["HEAD", "-x", "a b", "main~1", "@{u}", "ma\u200bin"])
def test_what_git_takes_for_no_branch_is_refused_as_one(pushed, branch):
    with pytest.raises(UsageError, match="push the commit to a branch of another name"):
        named(pushed, branch)


def test_a_branch_of_origin_that_has_the_commit_counts(pushed):
    found = named(pushed, "main")
    assert (found.branch, found.protected, found.branch_problem) == ("main", True, "")
    repositories.commit(pushed, {"x": "1"})
    repositories.git(pushed, "push", "--quiet", "origin", "HEAD:main")
    assert named(pushed, "main").protected


@pytest.mark.row("P5")
def test_a_branch_that_origin_moved_away_from_the_commit_does_not_count_and_the_run_says_so(pushed, tmp_path):
    first = repositories.git(pushed, "rev-parse", "HEAD")
    repositories.commit(pushed, {"x": "1"})
    repositories.git(pushed, "push", "--quiet", "origin", "HEAD:main")
    repositories.git(tmp_path / "bare.git", "update-ref", "refs/heads/main", first)
    found = named(pushed, "main")
    assert (found.branch, found.protected, found.rules) == ("main", False, question(pushed).protection.branch.commit)
    record = find_or_create_run(
        FolderStore(tmp_path / "store"), found, again=False, target="local", site=Site(), sealer=new_sealer()
    ).record
    why = f"nothing is published: branch main of origin, at {first[:8]}, lacks the commit"
    assert unpublishable_reason(record) == why
    assert (record.commit.protected, record.commit.branch) == (False, "main")


@pytest.mark.row("P5")
def test_a_branch_that_origin_does_not_have_does_not_count(pushed):
    repositories.git(pushed, "update-ref", "refs/remotes/origin/release", "HEAD")
    repositories.commit(pushed, {"line.toml": GATES + '[publish]\nbranches = ["main", "release"]\n'})
    repositories.git(pushed, "push", "--quiet", "origin", "HEAD:main")
    assert named(pushed, "release").branch_problem == "origin has no branch release"


def test_a_tip_that_is_not_here_yet_is_not_known(pushed, tmp_path, repo):
    repositories.commit(repo, {"x": "1"})
    repositories.git(repo, "push", "--quiet", str(tmp_path / "bare.git"), "main")
    found = named(pushed, "main")
    assert not found.protected
    assert found.branch_problem.endswith("which is not here: git fetch origin")


@pytest.mark.row("P5")
def test_where_origin_does_not_answer_the_branch_is_not_known_but_for_the_answer_to_a_fetch(pushed, tmp_path):
    repositories.git(pushed, "fetch", "--quiet", "origin")
    (tmp_path / "bare.git").rename(tmp_path / "away.git")
    assert named(pushed, "main").protected  # as a build server: it has just fetched
    fetched = pushed / ".git" / "FETCH_HEAD"
    old = time.time() - origin_branch.FRESH_SECONDS - 1
    os.utime(fetched, (old, old))
    found = named(pushed, "main")
    assert not found.protected
    assert found.branch_problem.startswith("it is not known whether branch main has the commit: origin does not answer")


@pytest.mark.row("P5")
def test_a_fetch_from_another_repository_answers_nothing(pushed, tmp_path, repo):
    repositories.git(tmp_path, "clone", "--quiet", "--bare", str(repo), "fork.git")
    repositories.git(pushed, "fetch", "--quiet", str(tmp_path / "fork.git"), "main")
    (tmp_path / "bare.git").rename(tmp_path / "away.git")
    assert not named(pushed, "main").protected


def test_without_a_remote_the_local_branch_counts(repo):
    assert named(repo, "main").protected
    repositories.git(repo, "checkout", "--quiet", "-b", "feature")
    repositories.commit(repo, {"x": "1"})
    repositories.git(repo, "branch", "--force", "main")
    repositories.git(repo, "branch", "release", "main~1")
    repositories.commit(repo, {"line.toml": GATES + '[publish]\nbranches = ["main", "release"]\n'})
    repositories.git(repo, "branch", "--force", "main")
    assert named(repo, "main").protected
    assert named(repo, "release").branch_problem == "no branch release of this repository has the commit"


def test_a_branch_that_publishes_nothing_is_not_asked_for(pushed, tmp_path):
    (tmp_path / "bare.git").rename(tmp_path / "away.git")
    found = named(pushed, "feature")
    assert (found.branch, found.branch_problem) == ("feature", "")

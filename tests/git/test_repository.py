"""Git is asked safely: hostile names and messages are data, hooks and submodules do not run."""

import os

import pytest
from tests.line import repositories

from gangline.errors import UsageError
from gangline.git.bounded_process import OutputTooLarge
from gangline.git.command import run_git
from gangline.git.objects import LONGEST_PART, parts
from gangline.git.repository import Repository
from gangline.line.request.run_request import CommitOrigin, resolve_request
from gangline.sanitize import clean, shown_name

HOSTILE = "$(touch pwned) %0a \x1b[31mred\x1b[0m \u202egnp.exe @everyone `id` \u200b; rm -rf /"


@pytest.fixture
def repo(tmp_path):
    return repositories.make_repository(tmp_path / "repo")


def test_commit_tree_and_files_are_those_of_the_commit(repo):
    git = Repository.at(repo)
    sha = git.commit()
    (repo / "answer.py").write_text("changed on disk")
    assert sha == repositories.git(repo, "rev-parse", "HEAD")
    assert git.tree(sha) == repositories.git(repo, "rev-parse", "HEAD^{tree}")
    assert git.file(git.tree(sha), "answer.py").decode() == repositories.PROGRAM
    assert git.file(git.tree(sha), "missing") is None
    with pytest.raises(OutputTooLarge, match=r"answer\.py: wanted at most 3 B, found \d+ B; move data out of the file"):
        git.file(git.tree(sha), "answer.py", most_bytes=3)
    assert [entry.path for entry in git.entries(git.tree(sha))] == ["answer.py", "line.toml"]


def test_git_is_asked_once_about_what_a_full_name_holds(repo, monkeypatch):
    git = Repository.at(repo)
    sha, asked = git.commit(), []
    monkeypatch.setattr(
        "gangline.git.repository.run_git", lambda *words, **how: asked.append(words) or run_git(*words, **how)
    )
    for _ in range(2):
        assert git.file(git.tree(sha), "answer.py").decode() == repositories.PROGRAM
        assert git.tree("HEAD") == git.tree(sha)
    assert [words[1] for words in asked] == ["rev-parse", "cat-file", "rev-parse", "rev-parse"], "a branch may move"
    repositories.commit(repo, {"answer.py": "another"})
    assert git.file(git.tree("HEAD"), "answer.py") == b"another"
    with pytest.raises(OutputTooLarge):
        git.file(git.tree(sha), "answer.py", most_bytes=3)


def test_git_lists_a_tree_once(repo, monkeypatch):
    git, asked, stream = Repository.at(repo), [], Repository._stream
    monkeypatch.setattr(Repository, "_stream", lambda own, *words: asked.append(words[0]) or stream(own, *words))
    tree = git.tree(git.commit())
    assert git.entries(tree) == git.entries(tree) == Repository.at(repo).entries(tree)
    assert asked == ["ls-tree"] * 2, "once for each repository that was opened"
    repositories.commit(repo, {"a/b.txt": "new"})
    assert [entry.path for entry in git.entries(git.tree(git.commit()))] == ["a/b.txt", "answer.py", "line.toml"]


def test_a_listing_with_more_entries_than_a_commit_may_have_is_refused_each_time(repo, monkeypatch):
    git = Repository.at(repo)
    tree = git.tree(git.commit())
    monkeypatch.setattr("gangline.git.objects.MOST_ENTRIES", 1)
    for _ in range(2):
        with pytest.raises(OutputTooLarge, match="more than 1 files"):
            git.entries(tree)


def test_many_blobs_come_in_order_and_whole(repo):
    files = {f"d/{n}.txt": "line\n" * n for n in range(20)}
    repositories.commit(repo, files)
    git = Repository.at(repo)
    entries = [entry for entry in git.entries(git.tree(git.commit())) if entry.path.startswith("d/")]
    contents = dict(zip((e.path for e in entries), git.blobs([e.blob for e in entries]), strict=True))
    assert contents == {path: text.encode() for path, text in files.items()}


def test_a_blob_that_is_not_there_is_said_so(repo):
    with pytest.raises(UsageError, match="shallow"):
        list(Repository.at(repo).blobs(["0" * 40]))


@pytest.mark.parametrize("name", ["--help", "-x", "a..b", "$(id)", "a b", "x" * 300, "", "HEAD\n--all", "no-such"])
def test_names_that_are_no_commit_are_refused(repo, name):
    with pytest.raises(UsageError):
        Repository.at(repo).commit(name)


def test_a_hostile_subject_is_one_clean_line(repo):
    repositories.commit(repo, {"a.txt": "a"}, HOSTILE + "\r\nsecond line")
    subject = Repository.at(repo).subject("HEAD")
    assert subject.isprintable()
    assert "\u202e" not in subject
    assert len(subject) <= 200
    assert not (repo / "pwned").exists()
    assert clean("x" * 999, limit=200) == "x" * 200


def test_a_dirty_tree_has_new_changed_and_deleted_files_and_leaves_the_index_alone(repo):
    git = Repository.at(repo)
    assert git.dirty_tree() is None
    (repo / "new.txt").write_text("new")
    (repo / "answer.py").write_text("changed")
    (repo / "line.toml").unlink()
    (repo / ".gitignore").write_text("*.log\n")
    (repo / "noise.log").write_text("ignored")
    before = repositories.git(repo, "status", "--porcelain")
    tree = git.dirty_tree()
    assert [entry.path for entry in git.entries(tree)] == [".gitignore", "answer.py", "new.txt"]
    assert git.file(tree, "answer.py") == b"changed"
    assert repositories.git(repo, "status", "--porcelain") == before
    assert git.dirty_tree() == tree
    assert b"changed" in git.patch(git.tree("HEAD"), tree)
    assert git.uncommitted() == (("answer.py", "line.toml"), (".gitignore", "new.txt"))


def test_a_file_that_was_only_touched_is_not_dirty(repo):
    os.utime(repo / "answer.py")
    assert Repository.at(repo).dirty_tree() is None


def test_a_file_that_changed_in_the_second_of_the_index_is_dirty(repo):
    second = 1_000_000_000
    repositories.git(repo, "config", "core.trustctime", "false")
    text = (repo / "answer.py").read_text()
    os.utime(repo / "answer.py", (second, second))
    repositories.git(repo, "update-index", "--refresh")
    (repo / "answer.py").write_text(text.replace("import", "tropmi"))
    for path in (repo / "answer.py", repo / ".git" / "index"):
        os.utime(path, (second, second))
    tree = Repository.at(repo).dirty_tree()
    assert tree is not None
    assert Repository.at(repo).file(tree, "answer.py").startswith(b"tropmi")


def test_hooks_of_the_repository_do_not_run(repo):
    hook = repo / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {repo / 'pwned'}\n")
    hook.chmod(0o755)
    (repo / "answer.py").write_text("changed")
    assert Repository.at(repo).dirty_tree() is not None
    assert not (repo / "pwned").exists()


def test_the_environment_of_a_surrounding_hook_is_not_obeyed(repo, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    assert len(Repository.at(repo).commit()) == 40


def test_ancestors_are_nearest_first_and_bounded(repo):
    commits = [repositories.git(repo, "rev-parse", "HEAD")]
    commits += [repositories.commit(repo, {"n.txt": str(n)}) for n in range(5)]
    assert Repository.at(repo).ancestors(commits[-1], 3) == tuple(reversed(commits[-4:-1]))


def test_ancestors_of_a_merge_are_its_own_branch_first(repo):
    start = repositories.git(repo, "rev-parse", "HEAD")
    repositories.git(repo, "checkout", "-q", "-b", "topic")
    topic = [repositories.commit(repo, {"topic.txt": str(n)}) for n in range(2)]
    repositories.git(repo, "checkout", "-q", "-")
    own = [repositories.commit(repo, {"own.txt": str(n)}) for n in range(2)]
    repositories.git(repo, "merge", "-q", "--no-edit", "topic")
    ancestors = Repository.at(repo).ancestors("HEAD", 50)
    assert ancestors[:3] == (own[1], own[0], start)
    assert set(topic) < set(ancestors)
    assert Repository.at(repo).ancestors("HEAD", 1) == (own[1], topic[1])


def test_a_branch_is_named_only_when_that_is_clear(repo):
    git = Repository.at(repo)
    head = git.commit()
    assert (git.branch(), git.branch_holding(head)) == ("main", "main")
    repositories.git(repo, "branch", "other")
    assert git.branch_holding(head) == "main"
    repositories.git(repo, "checkout", "--quiet", "--detach")
    assert git.branch() is None
    assert git.branch_holding(head) is None


def test_a_local_branch_that_is_called_like_one_of_origin_is_none_of_them(repo):
    git = Repository.at(repo)
    repositories.git(repo, "branch", "refs/remotes/origin/main")
    repositories.git(repo, "update-ref", "refs/remotes/origin/topic", "HEAD")
    found = {each.ref: each.name for each in git.branches()}
    assert found == {
        "refs/heads/main": "main", "refs/heads/refs/remotes/origin/main": "refs/remotes/origin/main",
        "refs/remotes/origin/topic": "topic",
    }  # fmt: skip


def test_a_bare_repository_is_refused_with_the_way_out(repo, tmp_path):
    repositories.git(repo, "clone", "--quiet", "--bare", str(repo), str(tmp_path / "bare.git"))
    with pytest.raises(UsageError, match="git clone"):
        Repository.at(tmp_path / "bare.git")


def test_a_folder_that_is_missing_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no folder"):
        Repository.at(tmp_path / "missing")


@pytest.mark.parametrize(
    "name", ["ma\u200bin", "\u202emain", "main\u2060", "ma\xadin", "main\u3164", "main\ufe0f", "x" * 1001]
)
def test_a_branch_whose_name_does_not_show_is_none(repo, name):
    assert shown_name(name) is None
    fork = CommitOrigin(branch=name, trust="fork")
    assert resolve_request(repo, commit=None, overrides=(), strategy=None, origin=fork).branch is None


@pytest.mark.parametrize(
    "name", ["feature/ü#1", "a=b+c,d", "it's", "a&b;c|d", "(wip)", "漢字/é", "a\u3000b", "@", "{x}"]
)
def test_branches_have_the_names_that_git_gives_them(repo, name):
    repositories.git(repo, "update-ref", f"refs/heads/{name}", "HEAD")
    repositories.git(repo, "symbolic-ref", "HEAD", f"refs/heads/{name}")
    repositories.git(repo, "update-ref", f"refs/tags/{name}", "HEAD")  # for which git calls the branch heads/NAME
    repositories.git(repo, "update-ref", "-d", "refs/heads/main")
    found = Repository.at(repo)
    sha = found.commit()
    assert found.branch() == name
    assert found.branch_holding(sha) == name
    assert [each.name for each in found.branches()] == [name]
    assert found.commit(f"refs/heads/{name}") == sha
    if name != "@":
        assert found.commit(f"{name}~0") == sha
    asked = {"commit": sha, "overrides": (), "strategy": None}
    assert resolve_request(repo, **asked, origin=CommitOrigin(branch=name)).branch == name


def test_a_branch_that_breaks_lines_elsewhere_hides_no_other(repo):
    repositories.git(repo, "update-ref", "refs/heads/a\u2028b", "HEAD")
    assert {each.name for each in Repository.at(repo).branches()} == {"main", "a\u2028b"}


@pytest.mark.parametrize("name", ["-x", "a..b", "HEAD:line.toml", "HEAD^{/first}", "a b", "a\nb", ":/first", "*"])
def test_what_is_no_name_of_a_commit_is_refused(repo, name):
    with pytest.raises(UsageError, match="wanted a commit, branch or tag"):
        Repository.at(repo).commit(name)


def test_paths_are_read_up_to_their_longest_however_they_arrive():
    whole = b"a" * LONGEST_PART + b"\0" + b"b\0"
    for size in (1, 7, len(whole)):
        assert list(parts(whole[at : at + size] for at in range(0, len(whole), size))) == [b"a" * LONGEST_PART, b"b"]
        long = b"a" + whole
        with pytest.raises(OutputTooLarge, match=r"wanted paths of at most 4\.0 kB"):
            list(parts(long[at : at + size] for at in range(0, len(long), size)))

"""Clones of a service, against local repositories, one of them served over http on loopback with a password."""

import base64
import fcntl
import functools
import http.server
import subprocess
import sys
import threading
import time

import pytest
from tests.line.repositories import commit, git, make_repository

from gangline.errors import StorageError, UsageError
from gangline.git.bounded_process import OutputTooLarge, ProcessStopped
from gangline.git.clones import CloneBusy, Clones
from gangline.git.mirror import RemoteBranches
from gangline.git.remote import check_ref, check_url, git_environment
from gangline.git.repository import Repository
from gangline.git.repository_address import read_address

MAIN = "refs/heads/main"


@pytest.fixture
def origin(tmp_path):
    return make_repository(tmp_path / "origin")


@pytest.fixture
def clones(tmp_path):
    return Clones(tmp_path / "home")


def fetch(clones, origin, *refs, name="cheap"):
    return clones.fetch(str(origin), name=name, refs=refs or (MAIN,), local=True)


def test_a_commit_can_be_read_where_no_file_of_it_was_written(clones, origin):
    head = git(origin, "rev-parse", "HEAD")
    fetch(clones, origin)
    place = clones.checkout("cheap", head)
    repository = Repository.at(place)
    assert repository.commit() == head
    assert repository.dirty_tree() is None
    assert b"[project]" in repository.file(repository.tree(head), "line.toml")
    assert [each.name for each in place.iterdir()] == [".git"]


def test_a_commit_is_made_once_and_borrows_the_mirrors_objects(clones, origin):
    head = git(origin, "rev-parse", "HEAD")
    fetch(clones, origin)
    place = clones.checkout("cheap", head)
    before = place.stat().st_ino
    assert clones.checkout("cheap", head).stat().st_ino == before
    assert not list((place / ".git" / "objects").glob("??/*"))


def test_a_commit_is_of_the_repository_that_it_was_fetched_from(clones, origin, tmp_path):
    head = git(origin, "rev-parse", "HEAD")
    fetch(clones, origin)
    found = read_address(clones.checkout("cheap", head))
    assert found.text == str(origin)
    assert found.holds(f"file:{origin}/.gangline/store")
    git(origin, "remote", "add", "origin", "https://forge.example/acme/cheap.git")
    assert read_address(clones.checkout("cheap", head)).text == "forge.example/acme/cheap"


def test_a_branch_that_was_pushed_over_leaves_running_commits_alone(clones, origin):
    old = git(origin, "rev-parse", "HEAD")
    fetch(clones, origin)
    place = clones.checkout("cheap", old)
    git(origin, "commit", "--quiet", "--amend", "--message", "another")
    fetch(clones, origin)
    mirror = clones.home / "cheap" / "mirror.git"
    git(mirror, "gc", "--quiet", "--prune=now")
    assert Repository.at(place).file(Repository.at(place).tree(old), "line.toml")
    assert clones.checkout("cheap", git(origin, "rev-parse", "HEAD")) != place


def test_a_branch_may_become_a_folder_of_branches(clones, origin):
    git(origin, "branch", "topic")
    fetch(clones, origin, "refs/heads/topic")
    git(origin, "branch", "-D", "topic")
    git(origin, "branch", "topic/one")
    fetch(clones, origin, "refs/heads/topic/one")
    assert clones.checkout("cheap", git(origin, "rev-parse", "HEAD"))


def test_a_ref_that_is_gone_is_reported_with_its_name(clones, origin):
    with pytest.raises(StorageError, match="refs/heads/absent"):
        fetch(clones, origin, "refs/heads/absent")


def test_a_commit_that_was_never_fetched_is_not_invented(clones, origin):
    fetch(clones, origin)
    with pytest.raises(StorageError, match="fetch again"):
        clones.checkout("cheap", "0" * 40)


@pytest.mark.row("P3")
@pytest.mark.parametrize(
    "url",
    [
        "ssh://host/x", "git://host/x", "ext::sh -c id", "file:///etc", "/etc", "http://example.org/x", "ftp://host/x",
        "https://user:pw@host/x", "https://", "-uid", "--upload-pack=id", "https://host/x?y", "https://host/x#y",
        "http://127.0.0.1.example.org/x", "http://[::2]/x", "https://ho st/x", "https://host:99999999/x", "",
        "https://host/\u202ex", "http://0x7f000001.example/x",
    ],
)  # fmt: skip
def test_hostile_addresses_are_refused_without_repeating_them(clones, url):
    with pytest.raises(UsageError) as refused:
        clones.fetch(url, name="cheap", refs=[MAIN])
    assert "pw" not in str(refused.value)
    assert not clones.home.exists()


def test_addresses_that_may_be_fetched():
    assert check_url("https://git.example:8443/a/b.git", local=False) == "https"
    assert check_url("http://127.0.0.1:3000/a", local=False) == "http"
    assert check_url("http://[::1]:3000/a", local=False) == "http"
    assert check_url("/srv/git/a.git", local=True) == "file"


@pytest.mark.parametrize(
    "ref",
    [
        "--upload-pack=touch /tmp/x", "main", "refs/heads/..", "refs/heads/a b", "refs/heads/a:refs/heads/b",
        "+refs/heads/a", "refs/heads/*", "refs/heads/a~1", "refs/heads/@{u}", "refs/heads/a.lock", "refs/heads/\n",
        "refs/gangline/kept/x", "", "refs/heads/" + "x" * 1001, "HEAD", "abc123", "refs/heads/HEAD", "refs/heads/-x",
    ],
)  # fmt: skip
def test_refs_that_git_could_take_for_something_else_are_refused(ref):
    with pytest.raises(UsageError, match="full ref"):
        check_ref(ref)


def test_branch_names_full_of_shell_and_html_are_only_names(clones, origin, tmp_path):
    wild = "refs/heads/$(touch${IFS}x);<b>&\"'|`id`"
    git(origin, "update-ref", wild, "HEAD")
    fetch(clones, origin, wild)
    assert clones.checkout("cheap", git(origin, "rev-parse", "HEAD"))
    assert not (tmp_path / "x").exists()


def branches_of(place):
    rows = git(place, "for-each-ref", "--format=%(refname) %(objectname)", "refs/remotes/origin/").splitlines()
    return {ref.removeprefix("refs/remotes/origin/"): name for ref, name in (row.split(" ") for row in rows)}


@pytest.mark.row("P5")
def test_a_branch_called_head_is_refused_and_a_symbolic_ref_moves_no_other_branch(clones, origin):
    main = git(origin, "rev-parse", "HEAD")
    git(origin, "checkout", "--quiet", "-b", "evil")
    evil = commit(origin, {"x": "1"})
    fetch(clones, origin, MAIN, "refs/heads/evil")
    place = clones.checkout("cheap", evil, standing=RemoteBranches("main", {"main": main}))
    with pytest.raises(UsageError, match="a name that git takes for a branch"):
        clones.checkout("cheap", evil, standing=RemoteBranches("main", {"HEAD": evil, "main": main}))
    git(place, "symbolic-ref", "refs/remotes/origin/evil", "refs/remotes/origin/main")
    clones.checkout("cheap", evil, standing=RemoteBranches(None, {"evil": evil}))
    assert branches_of(place) == {"HEAD": main, "evil": evil, "main": main}


def test_a_branch_that_became_a_folder_of_branches_gives_way_in_a_clone_too(clones, origin):
    head = git(origin, "rev-parse", "HEAD")
    fetch(clones, origin)
    for names in (("a", "x/y"), ("a/b/c", "main"), ("a/b",), ("a", "x")):
        place = clones.checkout("cheap", head, standing=RemoteBranches(None, dict.fromkeys(names, head)))
        assert set(names) <= set(branches_of(place))
    assert set(branches_of(place)) == {"a", "x", "main"}


def test_branches_are_listed_by_the_names_that_git_gives_them(clones, origin):
    names = ["feature/ü#1", "a=b+c,d", "it's", "a\u2028b", "\u00a0x", "漢字"]
    for name in names:
        git(origin, "update-ref", f"refs/heads/{name}", "HEAD")
    git(origin, "symbolic-ref", "HEAD", f"refs/heads/{names[0]}")
    git(origin, "update-ref", "-d", "refs/heads/main")
    assert set(clones.heads(str(origin), local=True)) == {f"refs/heads/{name}" for name in names}
    bare = origin / ".git"
    assert clones.fetch_default_branch(str(bare), name="cheap", local=True)[0] == names[0]


@pytest.mark.parametrize("name", ["..", "a/b", "", "-x", ".hidden", "x" * 200])
def test_a_clones_name_is_one_segment(clones, origin, name):
    with pytest.raises(UsageError, match="name of a clone"):
        fetch(clones, origin, name=name)


@pytest.mark.row("P3")
def test_submodules_and_pointers_to_large_files_are_left_alone(clones, origin):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    files = {
        "big.bin": pointer,
        ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs\n",
        ".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch /tmp/owned"\n',
    }
    commit(origin, files)
    git(origin, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},x")
    git(origin, "commit", "--quiet", "--message", "submodule")
    head = git(origin, "rev-parse", "HEAD")
    fetch(clones, origin)
    repository = Repository.at(clones.checkout("cheap", head))
    assert repository.file(repository.tree(head), "big.bin").decode() == pointer
    found = repository.entries_and_submodules(repository.tree(head))
    assert [each.path for each in found if each.is_submodule] == ["x"]
    assert "x" not in {each.path for each in repository.entries(repository.tree(head))}


def test_no_hook_of_either_side_runs(clones, origin, tmp_path, monkeypatch):
    template = tmp_path / "template" / "hooks"
    template.mkdir(parents=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        hook = template / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    configuration = tmp_path / "config"
    configuration.write_text(f"[init]\n\ttemplateDir = {template.parent}\n[core]\n\thooksPath = {template}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(configuration))
    fetch(clones, origin)
    clones.checkout("cheap", git(origin, "rev-parse", "HEAD"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("strike", ["head", "objects", "config", "not_a_folder"])
def test_a_mirror_that_was_damaged_is_made_again(clones, origin, strike):
    head = git(origin, "rev-parse", "HEAD")
    mirror = fetch(clones, origin)
    damage(mirror, strike)
    fetch(clones, origin)
    repository = Repository.at(clones.checkout("cheap", head))
    assert list(repository.blobs([each.blob for each in repository.entries(repository.tree(head))]))


def test_a_file_that_the_mirror_lost_is_missed_before_a_run_is_shown_to_read_it(clones, origin):
    head = git(origin, "rev-parse", "HEAD")
    mirror = fetch(clones, origin)
    blob = git(origin, "rev-parse", "HEAD:line.toml")
    lose(mirror, blob)
    with pytest.raises(StorageError, match="fetch again"):
        clones.checkout("cheap", head)
    fetch(clones, origin)
    assert clones.checkout("cheap", head)


def lose(mirror, blob):
    """The file of one object of a mirror, whose objects come in packs."""
    for pack in (mirror / "objects" / "pack").glob("*.pack"):
        data = pack.read_bytes()
        for each in pack.parent.glob(f"{pack.stem}.*"):
            each.chmod(0o600)
            each.unlink()
        subprocess.run(["git", "-C", mirror, "unpack-objects", "-q"], input=data, check=True)
    (mirror / "objects" / blob[:2] / blob[2:]).unlink()


def damage(mirror, strike):
    if strike == "head":
        (mirror / "HEAD").write_bytes(b"\0" * 20)
    elif strike == "config":
        (mirror / "config").write_bytes(b"[core\n")
    elif strike == "not_a_folder":
        for each in sorted(mirror.rglob("*"), reverse=True):
            each.unlink() if each.is_file() else each.rmdir()
        mirror.rmdir()
        mirror.write_text("x")
    else:
        for each in (mirror / "objects").rglob("*"):
            if each.is_file():
                each.chmod(0o600)
                each.write_bytes(b"\0" * each.stat().st_size)


def test_several_processes_fetch_one_mirror_and_each_finds_its_commit(clones, origin):
    heads = []
    for number in range(4):
        git(origin, "switch", "--quiet", "--create", f"b{number}")
        heads.append(commit(origin, {"n.txt": str(number)}))
    program = (
        "import sys; from pathlib import Path; from gangline.git.clones import Clones\n"
        "home, url, ref, commit = sys.argv[1:]\n"
        "c = Clones(Path(home)); c.fetch(url, name='cheap', refs=[ref], local=True); c.checkout('cheap', commit)\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(clones.home), str(origin), f"refs/heads/b{number}", head],
            stderr=subprocess.PIPE,
        )
        for number, head in enumerate(heads)
    ]
    assert [(each.communicate(timeout=120)[1], each.returncode) for each in running] == [(b"", 0)] * 4
    assert sorted(each.name for each in (clones.home / "cheap" / "commits").iterdir()) == sorted(heads)


def test_idle_commits_go_and_those_in_use_stay(clones, origin):
    old = git(origin, "rev-parse", "HEAD")
    new = commit(origin, {"n.txt": "2"})
    fetch(clones, origin)
    stays, goes = clones.checkout("cheap", old), clones.checkout("cheap", new)
    assert clones.release(idle_seconds=3600) == []
    assert clones.release(idle_seconds=0, keep={stays}) == [goes]
    assert stays.exists()
    assert clones.checkout("cheap", new) == goes


def test_paths_between_two_commits_are_reported_and_unknown_commits_are_not_guessed(clones, origin):
    old = git(origin, "rev-parse", "HEAD")
    new = commit(origin, {"docs/a.md": "x", "b\tc.py": "y"})
    fetch(clones, origin)
    assert clones.changed("cheap", old, new) == ["b\tc.py", "docs/a.md"]
    assert clones.changed("cheap", "0" * 40, new) is None
    assert clones.changed("cheap", "--output=x", new) is None


def test_branches_of_a_repository_are_listed(clones, origin):
    head = git(origin, "rev-parse", "HEAD")
    git(origin, "branch", "a/b")
    assert clones.heads(str(origin), local=True) == {MAIN: head, "refs/heads/a/b": head}


class Guarded(http.server.SimpleHTTPRequestHandler):
    """A repository as plain files, for whoever knows the password; /moved redirects."""

    def do_GET(self):
        wanted = "Basic " + base64.b64encode(b"gangline:s3cret").decode()
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", self.path.replace("/moved", "", 1))
            self.end_headers()
        elif self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def guarded(origin, tmp_path):
    bare = tmp_path / "www" / "bare.git"
    bare.parent.mkdir()
    git(tmp_path, "clone", "--quiet", "--bare", str(origin), str(bare))
    git(bare, "update-server-info")
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Guarded, directory=str(tmp_path / "www"))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_credential_opens_its_host_and_is_in_no_file(clones, origin, guarded):
    clones.fetch(f"{guarded}/bare.git", name="cheap", refs=[MAIN], credential="s3cret", named_by_site=True)
    assert clones.checkout("cheap", git(origin, "rev-parse", "HEAD"))
    encoded = base64.b64encode(b"gangline:s3cret")
    texts = [each.read_bytes() for each in clones.home.rglob("*") if each.is_file()]
    assert not any(b"s3cret" in text or encoded in text for text in texts)


def test_without_the_credential_the_failure_asks_no_one(clones, guarded):
    with pytest.raises(StorageError, match="could not fetch"):
        clones.fetch(f"{guarded}/bare.git", name="cheap", refs=[MAIN], named_by_site=True)


@pytest.mark.row("P3")
def test_a_redirect_is_not_followed(clones, guarded):
    with pytest.raises(StorageError, match="could not fetch"):
        clones.fetch(f"{guarded}/moved/bare.git", name="cheap", refs=[MAIN], credential="s3cret", named_by_site=True)


@pytest.mark.row("P3")
def test_the_credential_is_bound_to_its_host():
    environment = git_environment("https", url="https://git.example/a/b", credential="t")
    keys = [value for key, value in environment.items() if key.startswith("GIT_CONFIG_KEY_")]
    assert "http.https://git.example/.extraHeader" in keys
    assert environment["GIT_ALLOW_PROTOCOL"] == "https"


def tag(folder, name, text="a version"):
    git(folder, "tag", "--annotate", "--message", text, name)


def test_tags_of_models_go_to_the_other_side_and_come_from_it(clones, origin):
    tag(origin, "model/cheap/v1")
    tag(origin, "release-1")
    mirror = fetch(clones, origin)
    clones.fetch_model_tags(str(origin), name="cheap", local=True)
    assert git(mirror, "tag").split() == ["model/cheap/v1"]
    git(mirror, "tag", "--annotate", "--message", "ours", "model/cheap/v2", git(origin, "rev-parse", "HEAD"))
    clones.push_model_tags(str(origin), name="cheap", local=True)
    clones.push_model_tags(str(origin), name="cheap", local=True)
    assert git(origin, "rev-parse", "model/cheap/v2") == git(mirror, "rev-parse", "model/cheap/v2")


def test_a_tag_that_is_there_is_never_moved(clones, origin):
    mirror = fetch(clones, origin)
    tag(origin, "model/cheap/v1", "theirs")
    theirs = git(origin, "rev-parse", "model/cheap/v1")
    git(mirror, "tag", "--annotate", "--message", "ours", "model/cheap/v1", git(origin, "rev-parse", "HEAD"))
    with pytest.raises(StorageError, match="model/cheap/v1"):
        clones.push_model_tags(str(origin), name="cheap", local=True)
    assert git(origin, "rev-parse", "model/cheap/v1") == theirs


def test_who_waits_for_a_clone_gives_up_after_a_while_or_once_no_one_waits_for_him(clones, origin):
    clones.fetch(str(origin), name="cheap", refs=[MAIN], local=True)
    with (clones.home / "cheap" / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        late = time.monotonic() + 5
        hasty = Clones(clones.home, wait_seconds=0.2, is_over=lambda: time.monotonic() > late)
        with pytest.raises(CloneBusy, match="is in use by another order"):
            hasty.fetch(str(origin), name="cheap", refs=[MAIN], local=True)
        with pytest.raises(ProcessStopped):
            clones.until(lambda: True).fetch(str(origin), name="cheap", refs=[MAIN], local=True)


def test_a_branch_list_that_is_too_long_and_a_difference_that_is_too_wide_are_not_held(clones, origin, monkeypatch):
    old = git(origin, "rev-parse", "HEAD")
    new = commit(origin, {f"n{number}.txt": "" for number in range(5)})
    clones.fetch(str(origin), name="cheap", refs=[MAIN], local=True)
    assert len(clones.changed("cheap", old, new)) == 5
    monkeypatch.setattr("gangline.git.mirror.MOST_CHANGED", 4)
    assert clones.changed("cheap", old, new) is None
    monkeypatch.setattr("gangline.git.clones.MOST_LISTED_BYTES", 10)
    with pytest.raises(OutputTooLarge, match="git ls-remote wrote more than 10 B"):
        clones.heads(str(origin), local=True)

"""What every forge does alike: heads, statuses, the one comment, changed paths, refusals."""

import threading

import pytest

from gangline.errors import ConfigError
from gangline.forge.protocol import CommitStatus

MARKER = "<!-- gangline:tiny -->"


def text(words):
    return f"{MARKER}\n{words}"


@pytest.mark.parametrize("branch", ["main", "feature/über+x", "a#b&c=1", "100%", "release-1.2"])
def test_head_of_a_branch_is_what_was_pushed_there(world, branch):
    sha = world.push(branch)
    head = world.forge.head(world.repository, f"refs/heads/{branch}")
    assert (head.commit, head.branch, head.pull_request, head.is_fork) == (sha, branch, None, False)


@pytest.mark.parametrize(
    "ref", ["refs/heads/never", "refs/pull/99/head", "refs/merge-requests/99/head", "refs/tags/v1"]
)
def test_nothing_is_at_a_ref_that_is_not_there(world, ref):
    assert world.forge.head(world.repository, ref) is None


@pytest.mark.parametrize("ref", ["refs/heads/../../user", "refs/heads/-x", "refs/pull/1/../../head", "HEAD", "", "/"])
def test_nothing_is_at_what_is_not_a_ref(world, ref):
    assert world.forge.head(world.repository, ref) is None


def test_a_branch_of_a_repository_that_we_may_not_see_is_not_gone(world):
    with pytest.raises(ConfigError, match=r"knows no owner/none, or hides it from this token; right forge\.ours\."):
        world.forge.head("owner/none", "refs/heads/main")


def test_a_deleted_branch_has_no_head(world):
    world.push("short-lived")
    world.delete_branch("short-lived")
    assert world.forge.head(world.repository, "refs/heads/short-lived") is None


def test_head_of_a_pull_request_reports_branch_and_target(world):
    number, sha = world.open_pull("wider")
    head = world.forge.head(world.repository, world.forge.pull_ref(number))
    assert (head.commit, head.pull_request, head.target, head.is_fork) == (sha, number, "main", False)
    assert head.branch.startswith("wider")


def test_a_pull_request_of_another_repository_is_a_fork(world):
    number, sha = world.open_pull("evil", fork=True)
    head = world.forge.head(world.repository, world.forge.pull_ref(number))
    assert (head.commit, head.is_fork) == (sha, True)


def test_a_closed_pull_request_has_no_head(world):
    number, _ = world.open_pull("gone")
    world.close_pull(number)
    assert world.forge.head(world.repository, world.forge.pull_ref(number)) is None


def test_heads_are_all_branches_and_open_pull_requests(world):
    main = world.push("main")
    number, sha = world.open_pull("wider")
    closed, _ = world.open_pull("narrower")
    world.close_pull(closed)
    heads = dict(world.forge.heads(world.repository))
    assert heads["refs/heads/main"].commit == main
    assert heads[world.forge.pull_ref(number)].commit == sha
    assert world.forge.pull_ref(closed) not in heads


@pytest.mark.parametrize("state", ["pending", "success", "failure"])
def test_a_status_is_on_its_commit(world, state):
    sha = world.push("main")
    status = CommitStatus(
        context="gangline/train", state=state, description="step 3 of 9", url="https://runs.example.org/r"
    )
    world.forge.set_status(world.repository, sha, status)
    assert world.statuses(sha) == [{"context": "gangline/train", "state": state, "said": "step 3 of 9"}]


def test_a_status_reported_twice_is_not_an_error(world):
    sha = world.push("main")
    for words in ("step 3", "step 4"):
        world.forge.set_status(
            world.repository, sha, CommitStatus(context="gangline/x", state="pending", description=words)
        )
    world.forge.set_status(
        world.repository, sha, CommitStatus(context="gangline/x", state="success", description="done")
    )
    assert [s["state"] for s in world.statuses(sha)][-1] == "success"


def test_a_comment_is_made_once_and_edited_in_place(world):
    number, _ = world.open_pull("wider")
    first = world.forge.upsert_comment(world.repository, number, MARKER, text("one"))
    second = world.forge.upsert_comment(world.repository, number, MARKER, text("two"))
    ((_, ours, said),) = world.comments(number)
    assert ours
    assert said == text("two")
    assert first == second
    assert first.startswith("http")


def test_a_strangers_comment_with_our_marker_is_left_alone(world):
    number, _ = world.open_pull("wider")
    world.comment_as_stranger(number, text("I am the build"))
    world.forge.upsert_comment(world.repository, number, MARKER, text("one"))
    said = [(ours, words) for _, ours, words in world.comments(number)]
    assert said == [(False, text("I am the build")), (True, text("one"))]


def test_a_deleted_comment_is_made_again(world):
    number, _ = world.open_pull("wider")
    world.forge.upsert_comment(world.repository, number, MARKER, text("one"))
    world.delete_comment(world.comments(number)[0][0])
    world.forge.upsert_comment(world.repository, number, MARKER, text("two"))
    assert [words for _, _, words in world.comments(number)] == [text("two")]


def test_of_several_comments_of_ours_one_is_left(world):
    number, _ = world.open_pull("wider")
    for words in ("one", "two", "three"):
        world.comment_as_us(number, text(words))
    world.forge.upsert_comment(world.repository, number, MARKER, text("four"))
    assert [words for _, _, words in world.comments(number)] == [text("four")]


def test_two_drivers_that_race_end_with_one_comment(world):
    number, _ = world.open_pull("wider")
    start = threading.Barrier(2)

    def drive(words):
        start.wait()
        world.forge.upsert_comment(world.repository, number, MARKER, text(words))

    racers = [threading.Thread(target=drive, args=(words,)) for words in ("left", "right")]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [words in (text("left"), text("right")) for _, _, words in world.comments(number)] == [True]


def test_changes_of_a_pull_request_are_its_paths(world):
    number, _ = world.open_pull("wider")
    assert world.forge.changes(world.repository, number) == ["model.py"]


def test_a_token_that_may_not_is_refused_with_what_it_needs(world):
    sha = world.push("main")
    forge = world.with_token("0" * 40)
    with pytest.raises(ConfigError, match=r"refuses the token .* give forge\.ours\.token the rights") as caught:
        forge.set_status(world.repository, sha, CommitStatus(context="gangline/x", state="success", description=""))
    assert "0" * 40 not in str(caught.value)


def test_a_repository_that_is_not_there_is_said(world):
    with pytest.raises(ConfigError, match="no such place"):
        world.forge.set_status(
            "team/none", "1" * 40, CommitStatus(context="gangline/x", state="success", description="")
        )


@pytest.mark.parametrize(
    "name", ["../user", "team/..", "team/tiny/../../x", "team", "te am/x", "a/b?c", "a/b#c", "//x"]
)
def test_a_repository_that_is_not_a_name_is_never_asked_for(world, name):
    with pytest.raises(ConfigError, match="wanted a"):
        world.forge.head(name, "refs/heads/main")


def test_pages_of_commit_and_clone_lie_on_the_forge(world):
    assert world.forge.clone_url(world.repository).endswith(f"/{world.repository}.git")
    assert world.forge.commit_url(world.repository, "1" * 40).endswith(f"/commit/{'1' * 40}")

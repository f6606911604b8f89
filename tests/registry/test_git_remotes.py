"""What a version sends to a git remote: nothing unless `publish.push` says so; and no remote holds a run up."""

import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.registry.passed_run import git

from gangline.errors import IntegrityError
from gangline.git.clones import Clones
from gangline.kfp.task_repository import tag_version
from gangline.line.record.store import read_record
from gangline.registry import git_tags
from gangline.registry.version_checks import VersionEvidence, check_version
from gangline.registry.versions import read_version
from gangline.signing.keys import trusted_keys
from gangline.spec.config.line import PublishTable

NAME = "model/bytegpt/v1"
LIMIT = 1.0
PUSHES = PublishTable(smoke=False, push=True)


class Silent:
    """A server that takes connections, counts them, and never answers."""

    def __init__(self):
        self._bound = socket.create_server(("127.0.0.1", 0))
        self.connections = []
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def port(self):
        return self._bound.getsockname()[1]

    def _serve(self):
        while True:
            try:
                self.connections.append(self._bound.accept()[0])
            except OSError:
                return

    def close(self):
        self._bound.shutdown(socket.SHUT_RDWR)
        for each in (self._bound, *self.connections):
            each.close()


@pytest.fixture
def silent():
    server = Silent()
    yield server
    server.close()


@pytest.fixture
def away(published, silent, monkeypatch):
    """A published version whose repository has the silent server as `origin`."""
    workspace, _ = published
    monkeypatch.setattr(git_tags, "REMOTE_SECONDS", LIMIT)
    git(workspace.repo, "remote", "add", "origin", f"http://me:secret@127.0.0.1:{silent.port}/m.git?token=1")
    return workspace


@pytest.fixture
def origin(published, tmp_path):
    """A bare repository whose hook writes down every push."""
    workspace, _ = published
    git(tmp_path, "init", "--quiet", "--bare", "origin.git")
    hook = tmp_path / "origin.git" / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\ncat >> {tmp_path / 'pushes'}\n")
    hook.chmod(0o755)
    git(workspace.repo, "remote", "add", "origin", str(tmp_path / "origin.git"))
    return tmp_path / "origin.git"


def tag_check(workspace):
    evidence = VersionEvidence(
        store=workspace.store,
        repo=workspace.repo,
        keys=trusted_keys(workspace.site, workspace.environ),
        read_record=read_record,
    )
    checks = check_version(read_version(workspace.store, "bytegpt", 1), evidence)
    return next(each for each in checks if each.name == "tag")


def pushes_by_its_line(workspace):
    """The run's record says that its line has `publish.push`."""
    inputs = workspace.record.inputs
    workspace.place(replace(workspace.record, inputs=replace(inputs, values={**inputs.values, "publish.push": True})))


@pytest.mark.row("P3")
def test_without_the_key_origin_is_not_even_asked(away, silent):
    said = []
    again = away.publish(line=replace(away.line, publish=PublishTable(smoke=False)), announce=said.append)
    away.publish(away.attempt(2), line=replace(away.line, publish=PublishTable(smoke=False)))
    assert (again.events, said, git(away.repo, "tag").split()) == ((), [], [NAME, "model/bytegpt/v2"])
    assert tag_check(away).text.endswith(", here")
    assert silent.connections == []


def test_without_the_key_nothing_is_pushed(published, origin):
    published[0].publish()
    assert not (origin.parent / "pushes").exists()
    assert git(origin, "tag") == ""


def test_with_the_key_the_tag_arrives_and_was_announced_before(published, origin):
    workspace, said = published[0], []

    def announce(sentence):
        said.append((sentence, git(origin, "tag")))

    answer = workspace.publish(line=replace(workspace.line, publish=PUSHES), announce=announce)
    assert (answer.events, git(origin, "tag")) == ((), NAME)
    assert said == [(f"publish.push: the tag of the version goes to the git remote origin, {origin}", "")]
    assert (origin.parent / "pushes").read_text().count(NAME) == 1


def test_with_the_key_a_remote_that_does_not_answer_costs_one_limit_and_one_sentence(away, silent):
    said = []
    repo, version = away.repo, read_version(away.store, "bytegpt", 1)
    answer = away.publish(line=replace(away.line, publish=PUSHES), announce=said.append)
    assert git(away.repo, "tag") == NAME
    (event,) = answer.events
    assert event == (
        f"tag {NAME} was made here, origin did not confirm it: no answer within 1 s;"
        f" push it later: git push origin {NAME}"
    )
    assert said == [
        f"publish.push: the tag of the version goes to the git remote origin, http://127.0.0.1:{silent.port}/m.git"
    ]
    assert silent.connections
    began = time.monotonic()
    asked = git_tags.open_remote(repo, wanted=True)
    assert git_tags.taken_numbers(repo, version.model, asked) == {1}
    assert git_tags.push_tag(asked, git_tags.read_tag(repo, NAME)) is not None
    assert time.monotonic() - began < 2 * LIMIT


def test_no_password_of_an_address_is_repeated(published, monkeypatch):
    workspace, _ = published
    git(workspace.repo, "remote", "add", "origin", "http://me:p@ss@127.0.0.1:1/m.git")
    answer = workspace.publish(line=replace(workspace.line, publish=PUSHES))
    assert "git push origin" in answer.events[0]
    assert "p@ss" not in answer.events[0]
    assert "ss@" not in answer.events[0]


def test_the_tag_here_is_enough_to_promote_and_a_silent_origin_is_called_unknown(away):
    pushes_by_its_line(away)
    found = tag_check(away)
    assert (found.ok, found.text.partition("; ")[2]) == (True, "origin does not answer, so its tag is unknown")


def test_an_origin_that_lacks_a_pushed_tag_is_reported_and_one_that_contradicts_it_is_refused(published, origin):
    workspace, _ = published
    pushes_by_its_line(workspace)
    found = tag_check(workspace)
    assert (found.ok, found.text.partition("; ")[2]) == (True, f"origin lacks it: git push origin {NAME}")
    git(workspace.repo, "push", "--quiet", "origin", NAME)
    assert tag_check(workspace).text.endswith(", here and on origin")
    git(origin, "tag", "-f", "-a", "-m", "theirs", NAME, workspace.record.commit.sha)
    found = tag_check(workspace)
    assert not found.ok
    assert "origin has another" in found.text


@pytest.mark.parametrize("push", [False, True])
def test_the_driver_of_a_pipelines_server_pushes_by_the_same_key(published, origin, push):
    """Its tasks publish and have no repository: the tag is made, and pushed or not, where the driver is."""
    workspace, said = published[0], []
    git(workspace.repo, "tag", "-d", NAME)
    record, inputs = workspace.record, workspace.record.inputs
    made = replace(record.stages["publish"], outputs={"model": "bytegpt", "version": 1})
    values = {**inputs.values, "publish.push": push}
    record = replace(record, stages={**record.stages, "publish": made}, inputs=replace(inputs, values=values))
    tag_version(workspace.repo, record, workspace.store, SimpleNamespace(note=said.append))
    assert git(workspace.repo, "tag") == NAME
    assert git(origin, "tag") == (NAME if push else "")
    assert len(said) == push


def test_a_clone_of_the_service_keeps_its_tags_in_the_mirror_without_the_key(published, tmp_path):
    workspace, _ = published
    clones, commit = Clones(tmp_path / "clones"), workspace.record.commit.sha
    mirror = clones.fetch(str(workspace.repo), name="m", refs=["refs/heads/main"], local=True)
    place = clones.checkout("m", commit)
    tag = git_tags.create_tag(place, read_version(workspace.store, "bytegpt", 1))
    kept = git_tags.open_remote(place, wanted=False)
    assert kept.is_mirror
    assert git_tags.push_tag(kept, tag) is None
    assert git(mirror, "tag") == NAME
    git(mirror, "tag", "-f", "-a", "-m", "theirs", NAME, commit)
    with pytest.raises(IntegrityError, match="is taken on origin"):
        git_tags.push_tag(kept, tag)

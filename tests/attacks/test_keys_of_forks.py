"""A driver that sees commits of forks alone, and has a key for these: what it seals beyond them counts for nothing."""

from dataclasses import replace

import pytest
from tests.line.records import driven, new_sealer

from gangline.errors import IntegrityError
from gangline.signing.record_seal import Sealer
from gangline.spec.identity import run_id

pytestmark = pytest.mark.row("P5")


@pytest.fixture
def project():
    return new_sealer()


@pytest.fixture
def check(project):
    """The driver of forks: it believes the project's key, and its own where that may seal."""
    own = new_sealer()
    return Sealer(own.key, project.trusted, own.trusted)


@pytest.fixture
def line(project, check):
    return Sealer(project.key, project.trusted, check.forks)


def of_fork(*, approved=None):
    made = driven()
    commit = replace(made.commit, trust="fork", protected=False)
    named = run_id("cheap", commit, line=made.inputs.line, attempt=1)
    return replace(made, commit=commit, run=replace(made.run, id=named, approved=approved))


FORGED = {"the project's own commit": driven(), "an approval": of_fork(approved="ada, 2026-01-01")}


def test_the_record_of_a_fork_continues_from_its_driver_to_the_projects_and_is_read_by_both(check, line):
    waiting = check.seal(of_fork())
    assert line.check(waiting) == waiting
    approved = line.seal(of_fork(approved="ada, 2026-01-01"))
    assert check.check(approved) == approved


@pytest.mark.parametrize("what", FORGED)
def test_what_the_driver_of_forks_may_not_say_is_believed_by_no_one(check, line, what):
    stolen = Sealer(check.key, check.forks)
    forged = stolen.seal(FORGED[what])
    for driver in (line, check):
        with pytest.raises(IntegrityError, match=f"sealed by key {check.key.key_id}, trusted here"):
            driver.check(forged)


@pytest.mark.parametrize("what", FORGED)
def test_the_driver_of_forks_says_what_it_cannot_seal(check, what):
    with pytest.raises(IntegrityError, match="wanted a fork's run that is not approved"):
        check.seal(FORGED[what])

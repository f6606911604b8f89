"""States and ends of gangs by what Slurm says of their jobs, and the sentences for those that wait."""

from datetime import datetime

import pytest

from gangline.launch.slurm.commands import SlurmJob
from gangline.launch.slurm.states import (
    end_of_node,
    is_final,
    state_of,
    stopped_retry,
    waiting_sentence,
    with_earlier_lives,
)
from gangline.spec.gang.status import GangEnd


def job(state: str, **more) -> SlurmJob:
    return SlurmJob(number="4711", state=state, **more)


@pytest.mark.parametrize(
    ("state", "files", "wanted"),
    [
        ("PENDING", "starting", "waiting"),
        ("PENDING", "ended", "waiting"),
        ("REQUEUED", "ended", "waiting"),
        ("CONFIGURING", "starting", "starting"),
        ("RUNNING", "starting", "starting"),
        ("RUNNING", "running", "running"),
        ("RUNNING", "ended", "stopping"),
        ("SIGNALING", "running", "running"),
        ("COMPLETING", "running", "stopping"),
        ("COMPLETED", "ended", "ended"),
        ("NODE_FAIL", "running", "ended"),
    ],
)
def test_state_is_that_of_the_job_and_of_its_keepers_while_it_runs(state, files, wanted):
    assert state_of(job(state), files) == wanted


def test_job_that_slurm_has_forgotten_is_over():
    assert state_of(None, "running") == "ended"


@pytest.mark.parametrize(
    ("state", "code", "retry"),
    [
        ("PREEMPTED", 143, "free"),
        ("NODE_FAIL", 137, "same"),
        ("BOOT_FAIL", 137, "same"),
        ("TIMEOUT", 137, "same"),
        ("OUT_OF_MEMORY", 32, "changed"),
        ("CANCELLED", 70, "never"),
        ("FAILED", 34, "same"),
        ("COMPLETED", 34, "same"),
    ],
)
def test_end_without_a_keepers_word_is_that_of_the_job(state, code, retry):
    end = end_of_node(job(state), 1, cancelled=None, has_started=True)
    assert (end.exit_code, end.retry) == (code, retry)
    assert "4711" in end.reason


def test_own_cancellation_is_the_reason_whatever_slurm_says():
    end = end_of_node(job("CANCELLED"), 0, cancelled="enough", has_started=True)
    assert (end.exit_code, end.reason) == (70, "cancelled: enough")


def test_job_whose_script_found_no_folder_names_the_key():
    end = end_of_node(job("FAILED"), 0, cancelled=None, has_started=False)
    assert (end.exit_code, end.retry) == (10, "never")
    assert "slurm.shared" in end.reason


def test_forgotten_job_without_ends_is_tried_again():
    assert end_of_node(None, 0, cancelled=None, has_started=True).retry == "same"


def ended(code=0, **more) -> GangEnd:
    return GangEnd(exit_code=code, retry="never", reason="", **more)


def test_only_ends_that_bring_no_further_life_are_final():
    assert is_final([ended(), ended(30)])
    assert not is_final([ended(), ended(143)])
    assert not is_final([ended(), None])


def test_seconds_and_restarts_of_all_lives_are_those_of_the_gang():
    first = [ended(143, ledger={"compute": 2.0}, allocated_seconds=2.0, restarts=1), ended(143, allocated_seconds=1.0)]
    found = with_earlier_lives(ended(ledger={"compute": 3.0, "stop": 1.0}, allocated_seconds=4.0), [first])
    assert (found.ledger, found.allocated_seconds, found.restarts) == ({"compute": 5.0, "stop": 1.0}, 7.0, 2)


def test_stop_by_the_platform_is_free_if_it_saved():
    assert stopped_retry(ended(143, saved_step=4)).retry == "free"
    assert stopped_retry(ended(143, saved_step=0)).retry == "same"
    assert stopped_retry(ended(30, saved_step=4)).retry == "never"


NOW = datetime.fromisoformat("2026-11-29T12:00")


@pytest.mark.parametrize(
    ("reason", "more", "says"),
    [
        ("Priority", {}, "Priority"),
        ("Resources", {}, "Resources: no servers are free"),
        ("AssocGrpCPUMinutesLimit", {}, "the hours of the account are used up, a limit of the account"),
        ("QOSMaxGRESPerUser", {}, "as many GPUs are in use as may be, a limit of the QOS"),
        ("PartitionTimeLimit", {}, "a smaller slurm.time_seconds works"),
        ("ReqNodeNotAvail, UnavailableNodes:b1", {}, "ReqNodeNotAvail: a server that it needs is down"),
        ("SomethingNew", {}, "SomethingNew"),
        ("", {}, "Slurm has not looked at it yet"),
    ],
)
def test_reasons_are_sentences_that_begin_with_slurms_word(reason, more, says):
    assert says in waiting_sentence(job("PENDING", reason=reason, **more), now=NOW)


def test_waiting_gang_is_shown_its_place_and_the_expected_start():
    found = job("PENDING", reason="Priority", starts="2026-11-29T14:50:00")
    assert waiting_sentence(found, before=3, now=NOW) == "Priority, 3 jobs before it · Slurm expects 14:50"
    later = job("PENDING", reason="Resources", starts="2026-12-01T08:05:00")
    assert waiting_sentence(later, now=NOW) == "Resources: no servers are free · Slurm expects 01 Dec 08:05"
    behind_no_limit = job("PENDING", reason="Resources", starts="2027-11-29T13:12:00")
    assert waiting_sentence(behind_no_limit, now=NOW) == "Resources: no servers are free"

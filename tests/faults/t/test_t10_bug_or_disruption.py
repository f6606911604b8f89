"""T10: what a rank's end means: a bug fails at once, a disruption resumes, a saved stop costs nothing."""

import pytest
from tests.contracts.launcher.gangs import HEAD

from gangline.launch.local.follower import Tail

pytestmark = [pytest.mark.row("T10", full="the smoke slice has every code"), pytest.mark.long]
STEPPED = HEAD + "step(0); step(1); generation or rank == 0 or "


NEVER = {2: "never", 10: "never", 30: "never", 31: "never", 32: "changed", 50: "never"}
OWN = [1, 2, 3, 10, 20, 31, 32, 33, 34, 40, 42, 50, 60, 70, 75, 139]


def test_code_that_a_retry_cannot_help_ends_the_gang_at_once(stand, end_of):
    for code in NEVER:
        stand.launcher.submit(stand.podset(HEAD + f"rank or time.sleep(60); end({code})", f"run-{code}"))
    ends = {code: end_of(f"run-{code}")[0] for code in NEVER}
    assert {code: (end.exit_code, end.retry) for code, end in ends.items()} == {
        code: (code, retry) for code, retry in NEVER.items()
    }
    assert {(end.restarts, end.culprit) for end in ends.values()} == {(0, 1)}


def test_code_that_no_runtime_wrote_is_the_programs_own(stand, end_of):
    for code in OWN:
        stand.launcher.submit(stand.podset(HEAD + f"rank or time.sleep(60); sys.exit({code})", f"run-{code}"))
    ends = {code: end_of(f"run-{code}")[0] for code in OWN}
    assert {(end.exit_code, end.retry, end.restarts, end.culprit) for end in ends.values()} == {(30, "never", 0, 1)}
    assert all(f"rank 1 ended with code {code}" in end.reason for code, end in ends.items())


@pytest.mark.parametrize(
    ("death", "charged"),
    [
        ("end(33)", True),
        ("end(34)", True),
        ("end(40)", True),
        ("sys.exit(137)", True),
        ("os.kill(os.getpid(), 9)", True),
        ("os.kill(os.getpid(), 15)", True),
        ("sys.exit(143)", True),
        ("end(143)", False),
    ],
)
def test_disruption_resumes_and_only_a_saved_stop_is_free(stand, end_of, death, charged):
    stand.launcher.submit(stand.podset(STEPPED + death))
    end, _ = end_of()
    assert (end.exit_code, end.restarts) == (0, 1), end
    events = Tail(stand.root / "run-1" / "keeper-0.jsonl").events()
    assert [event["charged"] for event in events if event["event"] == "restart"] == [charged]


def test_saved_stop_without_progress_is_charged_so_that_it_ends(stand, end_of):
    stand.launcher.submit(stand.podset(HEAD + "time.sleep(1.1); end(143)", restarts=1))
    end, _ = end_of()
    assert (end.exit_code, end.restarts) == (30, 1), end


def test_rank_that_leaves_at_the_same_step_again_and_again_comes_to_an_end(stand, end_of):
    stand.launcher.submit(stand.podset(HEAD + "step(0); step(1); time.sleep(1.1); end(143)", restarts=1))
    end, _ = end_of()
    assert (end.exit_code, end.restarts) == (30, 2), end

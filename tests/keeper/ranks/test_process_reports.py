"""What counts of the reports of a rank's processes: by time, by who started whom, and over several generations."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.keeper.ranks.process_reports import SETTLE_SECONDS, ProcessReports
from gangline.keeper.ranks.process_tree import ProcessTree
from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.rank_processes import RankStart
from gangline.spec.processes import MOST_LISTED, ProcessFailure, ProcessReport, join_process_reports

LEADER, END = 100, 50.0


def failed(pid, mono=10.0, parent=LEADER, said="ValueError: x", **more):
    return {"event": "failed", "pid": pid, "parent": parent, "mono": mono, "program": f"{pid}.py", "what": f"{pid}.py",
            "how": "", "said": said} | more  # fmt: skip


def child(pid, mono=11.0, parent=LEADER, how="code 1"):
    return {
        "event": "child",
        "pid": pid,
        "parent": parent,
        "mono": mono,
        "program": f"{pid}.py",
        "what": "",
        "how": how,
    }


@pytest.fixture
def reports(tmp_path):
    return ProcessReports(tmp_path, secrets=())


def run(reports, tmp_path, lines, code=0, *, rank=0, others=(), now=END):
    """One generation, in which some ranks end."""
    reports.clear([rank])
    reports.started(RankStart(rank=rank, argv=("python",), environ={}, cwd=tmp_path, log=tmp_path), LEADER)
    (tmp_path / f"{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    exits = [*others, *([] if code is None else [RankExit(rank=rank, code=code, mono=END)])]
    return reports.collect(exits, ended_well=code == 0 and not others, now=now)


@pytest.mark.parametrize(
    ("lines", "programs"),
    [
        ([failed(1)], ["1.py"]),
        ([failed(1), child(1)], ["1.py"]),
        ([child(1)], ["1.py"]),
        ([failed(1, parent=2), failed(2)], ["2.py"]),
        ([failed(1, parent=2), failed(2, parent=3), child(3)], ["3.py"]),
        ([failed(1, parent=2)], ["1.py"]),
        ([failed(1), {"event": "excused", "pid": 1}], []),
        ([{"event": "excused", "pid": 1}, child(1)], []),
        ([failed(1, group=7), {"event": "excused", "group": 7}], []),
        ([child(7), {"event": "excused", "group": 7}], []),
        ([failed(1, parent=2), failed(2), {"event": "excused", "pid": 2}], ["1.py"]),
        ([failed(LEADER)], []),
        ([failed(1, mono=END + 1)], []),
        ([failed(1, mono=40.0), {"event": "ended", "pid": LEADER, "mono": 39.0}], []),
        ([failed(1), child(1), failed(1), child(1)], ["1.py", "1.py"]),
    ],
)  # fmt: skip
def test_a_failure_counts_if_none_that_ordered_or_took_it_is_known_and_its_rank_was_working(
    reports, tmp_path, lines, programs
):
    found = run(reports, tmp_path, lines)
    assert found.num_failed == len(programs)
    assert [each.program for each in found.failed for _ in range(each.count)] == programs


def test_a_shell_that_fails_with_a_python_below_it_says_what_that_raised(reports, tmp_path):
    (found,) = run(reports, tmp_path, [failed(1, parent=2), child(2, how="code 1")]).failed
    assert (found.program, found.how, found.said) == ("2.py", "code 1", "ValueError: x")


def test_failures_of_a_generation_that_failed_count_only_if_they_were_long_before(reports, tmp_path):
    other = RankExit(rank=1, code=1, mono=END - 1)
    early, late = failed(1, mono=END - 2 - SETTLE_SECONDS), failed(2, mono=END - 2)
    assert [each.program for each in run(reports, tmp_path, [early, late], None, others=[other]).failed] == ["1.py"]
    assert [each.program for each in run(reports, tmp_path, []).failed] == ["1.py"], "the next generation keeps it"


def test_a_rank_that_failed_answers_for_its_processes_and_one_that_saved_when_it_was_asked_to_does_not(
    reports, tmp_path
):
    assert run(reports, tmp_path, [failed(1)], code=1).num_failed == 0
    assert run(reports, tmp_path, [failed(1)], code=143).num_failed == 1


def test_a_process_that_no_python_waits_for_and_that_does_not_end_by_itself_is_unseen(reports, tmp_path):
    def began(pid):
        return {"event": "began", "pid": pid, "program": f"{pid}.py", "mono": 1.0}

    ended = {"event": "ended", "pid": 2, "mono": 2.0}
    gone = 1 << 30
    lines = [began(LEADER), began(gone), began(2), ended, began(3), failed(3), began(os.getpid())]
    found = run(reports, tmp_path, lines).unseen
    assert [each.program for each in found] == [f"{gone}.py"], "the last one is still there"


def test_reports_are_bounded_and_count_what_they_do_not_list(reports, tmp_path):
    lines = [failed(number, said=f"ValueError: {number} " + "x" * 10_000) for number in range(1, 30)]
    found = run(reports, tmp_path, lines)
    assert (len(found.failed), found.num_failed) == (MOST_LISTED, 29)
    assert max(len(each.said) for each in found.failed) <= 200


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_what_a_rank_puts_in_the_place_of_its_report_harms_no_keeper(reports, tmp_path, kind):
    place = tmp_path / "0.jsonl"
    {"folder": place.mkdir, "link": lambda: place.symlink_to("/dev/zero"), "pipe": lambda: os.mkfifo(place)}[kind]()
    reports.started(RankStart(rank=0, argv=(), environ={}, cwd=tmp_path, log=tmp_path), LEADER)
    assert reports.collect([RankExit(rank=0, code=0, mono=END)], ended_well=True, now=END) == ProcessReport()
    reports.clear([0])


ODD = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
KEYS = ["event", "pid", "parent", "group", "mono", "program", "what", "how", "said", "why"]
EVENTS = st.sampled_from(["began", "ended", "failed", "child", "excused", "restarted", "unseen", "other"])


@given(lines=st.lists(st.dictionaries(st.sampled_from(KEYS), ODD | EVENTS, max_size=8), max_size=20))
def test_lines_of_any_kind_are_read(lines):
    tree = ProcessTree(0, LEADER, lines)
    found = tree.failures(before=END)
    assert len(found) + len(tree.restarted(before=END)) <= len(lines)
    list(tree.vanished(lambda _: False))


def test_failures_that_differ_by_their_rank_alone_are_one_entry():
    def of(rank):
        one = ProcessFailure(rank=rank, program="fit.py", what="fit.py", how="code 1", said="x")
        return ProcessReport(failed=(one,), num_failed=1)

    found = join_process_reports(map(of, range(3)))
    assert [each.count for each in found.failed] == [3]
    assert found.failed[0].text == "fit.py on rank 0 ended with code 1, as 2 more did: x"

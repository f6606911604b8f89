"""Who is behind when a gang hangs, from what torch recorded: of made-up records, and of a gang that hangs."""

import os
import signal
import time

import pytest
from tests.train.gang import ROOT, tiny_plan

from gangline.keeper.ipc.heartbeat import peek
from gangline.keeper.ranks.hang_diagnosis import describe_lagging_rank, lagging_rank
from gangline.spec.plan import CheckpointPolicy, ProgramSpec

CODE = ROOT / "tests" / "train" / "paced"


def entry(number, *, name="all_reduce", group="0", done=True, pair=False):
    """One collective, as torch 2.15 writes it under gloo."""
    return {
        "collective_seq_id": 0 if pair else number, "p2p_seq_id": number if pair else 0, "is_p2p": pair,
        "profiling_name": f"gloo:{name}", "process_group": [group, "default_pg"], "retired": done, "state": "scheduled",
        "pg_id": int(group), "input_sizes": [[4]], "time_discovered_completed_ns": 0,
    }  # fmt: skip


def dump(*entries):
    return {"version": "2.10", "entries": list(entries)}


def test_rank_that_never_came_is_named_with_what_the_others_wait_in():
    done = [entry(number) for number in range(1, 812)]
    waits = dump(*done, entry(812, done=False))
    said = lagging_rank({0: waits, 1: waits, 5: dump(*done)})
    assert said == "rank 5 never entered all_reduce 812; ranks 0, 1 wait in it"


def test_rank_that_waits_for_another_is_not_the_culprit():
    """1 waits for 2 in their own group, and 0 for 1: it is 2 who came nowhere."""
    records = {
        0: dump(entry(1), entry(2, done=False)),
        1: dump(entry(1), entry(7, group="4"), entry(8, name="all_gather", group="4", done=False)),
        2: dump(entry(1), entry(7, group="4")),
    }
    assert lagging_rank(records) == "rank 2 never entered all_reduce 2; rank 0 waits in it"
    del records[0]
    assert lagging_rank(records) == "rank 2 never entered all_gather 8 of group 4; rank 1 waits in it"


def test_ranks_that_do_different_things_are_reported():
    records = {0: dump(entry(3, done=False)), 1: dump(entry(3, name="all_gather", done=False))}
    assert (
        lagging_rank(records) == "rank 0 entered all_reduce 3 where rank 1 entered all_gather: the collectives differ"
    )


def test_who_waits_for_a_message_is_distinguished_from_who_waits_for_no_one():
    records = {0: dump(entry(4, name="recv 0<-1", pair=True, done=False)), 1: dump(entry(9, name="send", pair=True))}
    assert lagging_rank(records) == "rank 0 waits in a collective, rank 1 is in none"


@pytest.mark.parametrize(
    "records",
    [{}, {0: dump()}, {0: dump(entry(1)), 1: dump(entry(1))}, {0: dump(entry(1, done=False))}, {0: {}, 1: {}}],
)
def test_records_that_distinguish_no_one_say_nothing(records):
    assert lagging_rank(records) == ""


def test_gang_that_hangs_is_asked_and_the_one_who_holds_it_up_named(make_gang):
    gang = make_gang(CODE)
    plan = tiny_plan("ddp", steps=50, program=ProgramSpec(task="model:Paced"), checkpoint=CheckpointPolicy(every=100))
    hung = gang.launch(plan, PACE="0.001", SLOW="1:1e6:40:1e9", TORCH_FR_BUFFER_SIZE="2000")
    deadline = time.monotonic() + 60
    beats = [gang.home / "heartbeat" / str(rank) for rank in (0, 1)]
    while not (found := peek(beats[1])) or found.step < 9:
        assert time.monotonic() < deadline, gang.log(1)
        time.sleep(0.05)
    pids = {rank: peek(path).pid for rank, path in enumerate(beats)}
    said = ""
    while not said.startswith("rank 1 never entered") and time.monotonic() < deadline:  # until both have come to rest
        said = describe_lagging_rank(gang.home / "heartbeat", pids)
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    assert hung.wait() == [137, 137]
    assert said.startswith("rank 1 never entered all")
    assert said.endswith("rank 0 waits in it")


def test_program_that_answers_no_signal_is_left_alone(tmp_path):
    began = time.monotonic()
    assert describe_lagging_rank(tmp_path, {0: os.getpid()}) == ""
    assert time.monotonic() - began < 30, "nobody was waited for"

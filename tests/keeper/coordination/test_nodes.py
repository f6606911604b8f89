"""Keepers of several nodes over real processes: one course, whoever fails, leaves or comes back."""

import json
import signal
import socket

import pytest
from tests.keeper.coordination.nodes import SAVER, poll

from gangline import procfs

pytestmark = pytest.mark.long

WORK = """
heartbeat.beat(0, "train")
while generation < int(os.environ.get("LAST", 1)): time.sleep(0.02)
"""


def test_all_nodes_start_together_and_end_with_one_verdict(nodes):
    gang = nodes("print('up', generation, os.environ['MASTER_PORT'])", num_nodes=3, ranks=2)
    ends = [gang.end(node) for node in range(3)]
    assert [end.exit_code for end in ends] == [0, 0, 0], ends
    assert {gang.log(rank).split()[-1] for rank in range(6)} == {str(gang.events("generation_started")[0]["port"])}
    for end in ends:
        assert abs(sum(end.ledger.values()) - end.allocated_seconds) < 1e-3 * end.allocated_seconds
        assert end.ledger["gather"] > 0


def test_killed_rank_of_another_node_makes_a_new_generation_on_all(nodes):
    gang = nodes("generation or (rank == 2 and os.kill(os.getpid(), 9)) or time.sleep(60)", ranks=2)
    ends = [gang.end(node) for node in range(2)]
    assert [(end.exit_code, end.generation, end.restarts) for end in ends] == [(0, 1, 1)] * 2
    assert [event["charged"] for event in gang.events("restart")] == [True]
    assert gang.events("restart")[0]["reason"] == "rank 2 ended by signal 9"
    assert gang.events("restart", node=1) == [], "one keeper tells, not all"


def test_error_on_another_node_ends_the_gang_with_its_class_and_log(nodes):
    gang = nodes("time.sleep(60) if rank == 0 else (print('broken by design'), end(31))")
    ends = [gang.end(node) for node in range(2)]
    assert [(end.exit_code, end.retry, end.culprit) for end in ends] == [(31, "never", 1)] * 2
    assert "broken by design" in ends[0].evidence["log"]


def test_rank_that_failed_first_decides_and_losing_a_peer_never_does(nodes):
    gang = nodes("time.sleep(0.3) or end(34) if rank == 0 else time.sleep(0.9) or end(31)")
    end = gang.end()
    assert (end.exit_code, end.culprit) == (31, 1), end


def test_node_that_vanishes_costs_one_event_and_its_replacement_continues(nodes):
    gang = nodes(WORK)
    gang.wait_for_step()
    gang.kill(1)
    poll(lambda: "waiting for node 1 of 2" in gang.status()["reason"])
    assert gang.status()["ranks"] == {}
    gang.start(1)
    ends = [gang.end(node) for node in range(2)]
    assert [(end.exit_code, end.generation) for end in ends] == [(0, 1)] * 2
    restart = gang.events("restart")[0]
    assert restart["charged"]
    assert "node 1 was lost" in restart["reason"]


def test_leader_that_vanishes_is_replaced_above_every_generation_that_was(nodes):
    gang = nodes(WORK, LAST="3", restarts=5)
    for generation in (0, 1):
        gang.wait_for_step(generation=generation)
        gang.kill(0)
        poll(lambda: gang.status(1)["ranks"] == {})
        gang.start(0)
    gang.wait_for_step(generation=2)
    assert gang.events("restart")[-1]["charged"]
    gang.kill(1)
    gang.start(1)
    ends = [gang.end(node) for node in range(2)]
    assert [(end.exit_code, end.generation, end.restarts) for end in ends] == [(0, 3, 3)] * 2


@pytest.mark.slow
def test_leader_that_vanishes_too_often_ends_the_gang(nodes):
    gang = nodes(WORK, LAST="9", restarts=1)
    gang.wait_for_step()
    gang.kill(0)
    gang.start(0)
    gang.wait_for_step(generation=1)
    gang.kill(1)
    end = gang.end()
    assert (end.exit_code, end.retry) == (30, "never")
    assert "max_events = 1 is used up" in end.reason


@pytest.mark.parametrize("leaver", [0, 1])
def test_node_that_is_asked_to_leave_lets_all_save_and_costs_nothing(nodes, leaver):
    gang = nodes(SAVER, restarts=0)
    gang.wait_for_step()
    gang.signal(leaver)
    end = gang.end(leaver)
    assert (end.exit_code, end.retry) == (143, "free"), end
    assert all("saved" in gang.log(rank) for rank in range(2))
    gang.start(leaver)
    ends = [gang.end(node) for node in range(2)]
    assert [(end.exit_code, end.generation, end.restarts) for end in ends] == [(0, 1, 1)] * 2
    assert [event["charged"] for event in gang.events("restart")] == [False]


def test_all_asked_to_leave_save_and_leave(nodes):
    gang = nodes(SAVER, num_nodes=3)
    gang.wait_for_step()
    for node in (2, 0, 1):
        gang.signal(node)
    ends = [gang.end(node) for node in range(3)]
    assert [(end.exit_code, end.retry) for end in ends] == [(143, "free")] * 3, ends


def test_cancel_reported_to_one_node_ends_all(nodes):
    gang = nodes(SAVER, LAST="9")
    gang.wait_for_step()
    (gang.home(1) / "cancel.json").write_text(json.dumps({"reason": "a better idea", "save": True}))
    gang.signal(1)
    ends = [gang.end(node) for node in range(2)]
    assert [(end.exit_code, end.retry) for end in ends] == [(70, "never")] * 2, ends
    assert "a better idea" in ends[0].reason
    assert all("saved" in gang.log(rank) for rank in range(2))


def test_node_0_says_what_a_stop_saved_and_no_other_claims_to_know(nodes):
    program = """
    signal.signal(signal.SIGTERM, lambda *_: (rank or tell("saved", step=3), end(143)))
    tell("started")
    heartbeat.beat(3, "train")
    while True: time.sleep(0.02)
    """
    gang = nodes(program)
    gang.wait_for_step(3)
    for node in (0, 1):
        gang.signal(node)
    ends = [gang.end(node) for node in range(2)]
    assert [(end.exit_code, end.step, end.saved_step) for end in ends] == [(143, 3, 3), (143, 3, None)]
    assert [end.reason.partition("; ")[2] for end in ends] == ["step 3 is saved", "what its program saved is not known"]


@pytest.mark.slow
def test_deadline_of_the_gang_ends_all(nodes):
    gang = nodes(SAVER, LAST="9", GANGLINE_DEADLINE_SECONDS="3")
    ends = [gang.end(node) for node in range(2)]
    assert [end.exit_code for end in ends] == [30, 30]
    assert "deadline of 3 s exceeded" in ends[0].reason


def test_node_that_never_comes_is_not_a_place(nodes):
    gang = nodes(WORK, absent=(1,), GANGLINE_REJOIN_SECONDS="1")
    end = gang.end()
    assert (end.exit_code, end.retry) == (20, "later")
    assert end.reason == "node 1 did not connect within 1 s"
    assert end.ledger.keys() == {"start"}, "nothing ran here"


def test_leader_that_never_comes_is_not_a_place_and_says_where_it_was_looked_for(nodes):
    gang = nodes(WORK, absent=(0,), GANGLINE_REJOIN_SECONDS="1")
    end = gang.end(1)
    assert (end.exit_code, end.retry) == (20, "later")
    assert "the keeper of node 0 at 127.0.0.1:" in end.reason


def test_frozen_node_is_gone_after_its_silence_and_welcome_when_it_wakes(nodes):
    gang = nodes(WORK, GANGLINE_SILENCE_SECONDS="2")
    gang.wait_for_step()
    gang.signal(1, signal.SIGSTOP)
    poll(lambda: gang.events("node_lost"))
    assert "sent nothing for" in gang.events("node_lost")[0]["reason"]
    gang.signal(1, signal.SIGCONT)
    ends = [gang.end(node) for node in range(2)]
    assert [(end.exit_code, end.generation) for end in ends] == [(0, 1)] * 2, ends


def test_rank_that_hangs_on_another_node_is_named_and_all_report_where_they_stand(nodes):
    program = """
    heartbeat.beat(0, "forward")
    for step in range(1, 4): time.sleep(0.05); heartbeat.beat(step, "forward")
    if generation == 0:
        heartbeat.beat(4 - rank, "forward" if rank else "wait")
        time.sleep(60)
    """
    gang = nodes(program, GANGLINE_WATCHDOG_EXTRA_SECONDS="1", GANGLINE_WATCHDOG_FIRST_SECONDS="3")
    end = gang.end()
    assert (end.exit_code, end.restarts) == (0, 1), end
    reason = gang.events("restart")[0]["reason"]
    assert reason.startswith("rank 1 made no progress for"), reason
    assert "after step 3, in phase 'forward'" in reason


def test_program_that_cannot_be_started_on_one_node_ends_the_gang(nodes):
    gang = nodes(WORK, absent=(1,))
    gang.start(1, GANGLINE_CODE="/nowhere")
    ends = [gang.end(node) for node in range(2)]
    assert [end.exit_code for end in ends] == [10, 10], ends


def test_twin_of_a_node_waits_and_finds_no_room_while_the_first_one_lives(nodes):
    gang = nodes(WORK, LAST="9")
    gang.wait_for_step()
    first = gang.processes[1]
    gang.start(1, GANGLINE_REJOIN_SECONDS="1")
    end = gang.end(1)
    assert end.exit_code == 20
    assert "already has a keeper of node 1" in end.reason
    assert first.poll() is None
    assert gang.events("restart") == []


@pytest.mark.slow
def test_nothing_is_left_of_a_killed_keeper(nodes):
    gang = nodes("print(os.getpid(), flush=True); time.sleep(60)")
    poll(lambda: gang.log(1).count("\n") == 2)
    pid = int(gang.log(1).split()[-1])
    gang.kill(1)
    poll(lambda: procfs.state(pid) is None)


def test_ranks_killed_on_both_nodes_at_once_are_one_event(nodes):
    gang = nodes("heartbeat.beat(0); generation or time.sleep(0.5) or os.kill(os.getpid(), 9)", restarts=1)
    ends = [gang.end(node) for node in range(2)]
    assert [(end.exit_code, end.restarts) for end in ends] == [(0, 1)] * 2, ends


def test_rank_killed_again_while_the_gang_restarts_is_not_a_hang(nodes):
    program = """
    if generation < 2 and rank == generation: os.kill(os.getpid(), 9)
    if generation < 2: time.sleep(60)
    """
    gang = nodes(program)
    ends = [gang.end(node) for node in range(2)]
    assert [(end.exit_code, end.generation) for end in ends] == [(0, 2)] * 2, ends


def test_node_that_is_stopped_while_the_others_are_awaited_leaves_for_free(nodes):
    gang = nodes(WORK, absent=(1,))
    poll(lambda: "waiting for node 1" in gang.status()["reason"])
    gang.signal(0)
    end = gang.end()
    assert (end.exit_code, end.retry) == (143, "free")


def test_strangers_on_the_control_port_disturb_no_one(nodes):
    gang = nodes(WORK, LAST="9")
    gang.wait_for_step()
    port = int(gang.environ["GANGLINE_CONTROL_PORT"])
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096, b'{"node": 1, "nonce": "x", "proof": "y"}\n', b""):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(words)
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.settimeout(5.0)
        assert b"nonce" in stranger.recv(4096)
        assert gang.status()["state"] == "running"
    assert gang.events("restart") == []
    assert gang.events("node_joined")[1:] == []


def test_keepers_without_the_gangs_key_say_so(nodes):
    gang = nodes(WORK, absent=(1,), GANGLINE_KEY_FILE="/nowhere/key")
    end = gang.end()
    assert (end.exit_code, end.retry) == (10, "never")
    assert "/nowhere/key" in end.reason


def test_elastic_gang_continues_without_a_lost_node_and_grows_when_it_is_back(nodes):
    gang = nodes(SAVER, num_nodes=3, sizes=(1, 2), restarts=1, LAST="9")
    gang.wait_for_step()
    gang.kill(1)
    poll(lambda: [each["after"] for each in gang.events("resized")] == [2])
    assert "node 1 was lost" in gang.events("resized")[0]["reason"]
    poll(lambda: gang.status(2)["ranks"].keys() == {"1"}, 60)
    gang.start(1)
    poll(lambda: [each["after"] for each in gang.events("resized")] == [2, 3])
    poll(lambda: all(gang.status(node)["ranks"].keys() == {str(node)} for node in range(3)))
    assert [each["charged"] for each in gang.events("restart")] == [True], "growing costs nothing"
    for node in range(3):
        gang.signal(node)
    ends = [gang.end(node) for node in range(3)]
    assert [end.exit_code for end in ends] == [143] * 3, ends
    for end in ends:
        assert sum(end.ledger.values()) == pytest.approx(end.allocated_seconds, rel=1e-3)


def test_node_that_a_smaller_size_leaves_out_holds_its_place(nodes):
    gang = nodes(SAVER, sizes=(1,), LAST="9")
    gang.wait_for_step()
    (gang.home(0) / "resize.json").write_text('{"ranks": 1}')
    poll(lambda: "idle: 1 ranks run on other nodes" in gang.status(1)["reason"])
    (gang.home(0) / "resize.json").write_text('{"ranks": 2}')
    poll(lambda: gang.status(1)["ranks"].keys() == {"1"})
    gang.signal(0)
    gang.signal(1)
    ends = [gang.end(node) for node in range(2)]
    assert [end.restarts for end in ends] == [0, 0]
    assert ends[1].ledger["idle"] > 0

"""Lines of pods become the events of a follower."""

from gangline.launch.kubernetes.follow.follower import PodEvents
from gangline.spec.gang.pod_output import event_line, keeper_line, log_line, status_line
from gangline.spec.gang.status import GangState, KeeperStatus


def step(rank: int, number: int) -> str:
    return event_line({"event": "step", "rank": rank, "step": number})


def take(reported: PodEvents, *lines: str, uid: str = "pod"):
    return [event for line in lines for event in reported.take(uid, line)]


def test_rank_0_is_reported_word_for_word_and_the_others_by_their_last_step():
    reported = PodEvents()
    events = take(reported, *(step(rank, number) for number in range(5) for rank in (0, 1)))
    assert [event.data["step"] for event in events] == [0, 1, 2, 3, 4]
    assert [(event.data["rank"], event.data["step"]) for event in reported.flush(now=True)] == [(1, 4)]
    assert list(reported.flush(now=True)) == []


def test_what_is_not_a_step_is_reported_of_every_rank():
    events = take(PodEvents(), event_line({"event": "saved", "rank": 7, "step": 10}))
    assert [(event.kind, event.text, event.data["rank"]) for event in events] == [("progress", "saved", 7)]


def test_restart_that_every_keeper_reports_is_one():
    lines = [
        event_line({"keeper": node, "event": "restart", "generation": 1, "reason": "rank 1 died"}) for node in range(3)
    ]
    later = event_line({"keeper": 0, "event": "restart", "generation": 2, "reason": "rank 4 died"})
    events = take(PodEvents(), *lines, later)
    assert [(event.kind, event.text) for event in events] == [("restart", "rank 1 died"), ("restart", "rank 4 died")]


def test_watchdogs_word_is_a_note_and_logs_are_no_events():
    events = take(
        PodEvents(),
        event_line({"keeper": 1, "event": "watchdog", "reason": "no step for 60 s"}),
        log_line(3, "Traceback"),
        keeper_line(0, "hello"),
        "a word of nobody",
        event_line({"event": "step"}),
    )
    assert [(event.kind, event.text) for event in events] == [("note", "no step for 60 s")]


def test_latest_word_of_each_keeper_counts():
    reported = PodEvents()
    for generation in range(2):
        for node in range(2):
            take(reported, status_line(_keeper(node, "running", generation)), uid=f"pod-{node}")
    latest = reported.statuses_of({"pod-0", "pod-1"})
    assert [status.generation for status in latest.values()] == [1, 1]
    assert (reported.generation, reported.restarts) == (1, 1)


def test_a_pod_that_is_gone_has_no_say_in_the_one_after_it():
    reported = PodEvents()
    take(reported, status_line(_keeper(0, "ended", 3)), uid="before")
    assert reported.statuses_of({"after"}) == {}, "it has not reported anything yet"
    take(reported, status_line(_keeper(0, "starting", 0)), uid="after")
    assert {uid: each.state for uid, each in reported.statuses_of({"after"}).items()} == {"after": "starting"}
    assert reported.generation == 3, "what has happened to the gang stays"


def _keeper(node: int, state: GangState, generation: int) -> KeeperStatus:
    return KeeperStatus(
        node_rank=node, pid=1, start_time=1, state=state, generation=generation, restarts=generation, ranks={},
        joined=(), reason="",
    )  # fmt: skip

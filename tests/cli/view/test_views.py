"""Three views of one run: a screen, plain lines, JSON lines."""

import io
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count

import pytest
from rich.console import Console
from tests.report import records
from tests.report.test_progress import step

from gangline.cli.view.live import LiveView, rank_line
from gangline.cli.view.run_view import JsonView, PlainView, choose_view
from gangline.cli.view.summary_lines import found_line
from gangline.launch.protocol import GangEvent, GangStatus
from gangline.line.record.observer import Observer
from gangline.spec.measurements import Diagnosis, Remedy
from gangline.spec.record import Record, StageInfo


def play(view: Observer, record: Record) -> None:
    """The run of a finished record, as a driver would tell it."""
    view.run_started(records.bare())
    for name, info in record.stages.items():
        view.stage_started(name)
        if name == "train":
            for number in range(1, 200):
                view.progress(name, step(number))
        view.stage_ended(name, info)
    view.run_ended(record)


def test_plain_lines_are_one_a_stage_and_the_verdict():
    lines: list[str] = []
    play(PlainView(lines.append, clock=lambda: 0.0), records.passed())
    assert len(lines) == 13
    assert [line.split()[0] for line in lines] == [*records.STAGES, "PASSED", "not", "next:"]
    assert lines[10] == "PASSED · 1 min 14 s · eval_loss 2.375 nats"
    assert lines[11] == f"{'':<10}not judged: quality:eval_loss, no base yet: this run becomes the base"
    assert lines[4].endswith("15 s")
    assert "next: gangline report --open" in lines[-1]
    assert not any("\x1b" in line or "\r" in line for line in lines)


def test_samples_that_come_too_slowly_are_named_at_the_end_with_the_key_that_helps():
    waits = Diagnosis(
        kind="bound", names=("data",), evidence="a step waits 31 % for samples; 1.4 times as fast without",
        action=Remedy(kind="read_ahead", names=("4",)), cost_percent=31.0,
    )  # fmt: skip
    computes = replace(waits, names=("compute",), action=Remedy(kind="compute"))
    for found, said in ((waits, 1), (computes, 0)):
        lines: list[str] = []
        play(PlainView(lines.append, clock=lambda: 0.0), replace(records.passed(), diagnoses=(found,)))
        assert sum("bound by" in line for line in lines) == said
        assert ("data.workers = 4 in line.toml" in lines[-2]) == bool(said)


def test_plain_progress_comes_at_most_every_ten_seconds():
    now = [0.0]
    lines: list[str] = []
    view = PlainView(lines.append, clock=lambda: now[0])
    view.stage_started("train")
    for number in range(1, 1000):
        now[0] += 0.1
        view.progress("train", step(number))
    assert 9 <= len(lines) <= 11


def test_plain_lines_report_at_once_that_a_gang_waits_no_more():
    lines: list[str] = []
    view = PlainView(lines.append, clock=lambda: 3.0)
    view.stage_started("train")
    for status in (
        GangStatus(state="waiting", waiting="2 of 4 servers are free"),
        GangStatus(state="running"),
        GangStatus(state="running", stale_seconds=5.0),
        GangStatus(state="running", stale_seconds=10.0),
        GangStatus(state="running"),
    ):
        view.progress("train", GangEvent(kind="state", status=status))
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        "waits: 2 of 4 servers are free",
        "started",
        "started · no response from where it runs for 5.0 s, its ranks continue",
        "started",
    ]


def test_a_refused_run_names_the_comparison_and_a_failed_one_the_logs():
    said: list[str] = []
    play(PlainView(said.append), records.refused())
    assert "next: gangline bisect eval_loss" in said[-1]
    assert f" · gangline diff {records.BASE_RUN} {records.THIS_RUN} · " in said[-1]
    play(PlainView(said.append), records.failed())
    assert said[-2].startswith("FAILED")
    assert "next: gangline logs bytegpt-9f31c2a0-zzzzzz --failed" in said[-1]


def test_json_lines_parse_and_the_last_holds_the_whole_record():
    lines: list[str] = []
    play(JsonView(lines.append), records.passed())
    events = [json.loads(line) for line in lines]
    assert events[0]["event"] == "run_started"
    assert {"event", "time"} <= set(events[5])
    assert Record.from_json(json.dumps(events[-1]["record"])) == records.passed()


def test_the_live_screen_shows_the_running_stage_and_keeps_ended_ones():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    with LiveView(console) as view:
        view.run_started(records.passed())
        view.stage_started("train")
        for rank in (0, 1):
            view.progress("train", step(60, rank=rank))
        view._live.refresh()
        moving = out.getvalue()
        view.stage_ended("train", records.passed().stages["train"])
        view.run_ended(records.passed())
    assert "ddp-2 60/120" in moving
    assert "rank 1" in moving
    assert "train     ddp-2 120/120 loss 2.471" in out.getvalue()
    assert "PASSED" in out.getvalue()


def test_a_narrow_screen_has_the_time_left_in_full():
    out = io.StringIO()
    with LiveView(Console(file=out, force_terminal=True, width=80, color_system=None)) as view:
        view.run_started(records.passed())
        view.stage_started("train")
        for number in range(1, 61):
            view.progress("train", step(number))
        view._live.refresh()
    assert "ETA 6.0 s" in out.getvalue()


def test_the_live_screen_says_what_bounds_the_training():
    out = io.StringIO()
    with LiveView(Console(file=out, force_terminal=True, width=120, color_system=None)) as view:
        view.stage_started("train")
        view.progress("train", step(1, data=0.03, forward=0.07))
        view._live.refresh()
    assert "bound by data: a step waits 30 % for samples; 1.4 times as fast without" in out.getvalue()


def test_the_live_screen_moves_every_second_while_nothing_is_heard():
    out = io.StringIO()
    with LiveView(Console(file=out, force_terminal=True, width=120)) as view:
        view.stage_started("prove")
        for _ in range(3):
            before = len(out.getvalue())
            deadline = time.monotonic() + 30
            while len(out.getvalue()) == before:
                assert time.monotonic() < deadline, "nothing was drawn for 30 s"
                time.sleep(0.05)


def test_the_live_screen_is_drawn_while_events_come():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    view = LiveView(console)
    view.stage_started("train")

    def draw():
        for _ in range(60):
            console.render_lines(view._foot)

    before = sys.getswitchinterval()
    with ThreadPoolExecutor(1) as pool:
        sys.setswitchinterval(1e-5)
        try:
            screen = pool.submit(draw)
            for number in count(1):
                view.progress("train", step(number, rank=number % 4))
                if screen.done():
                    break
        finally:
            sys.setswitchinterval(before)
        screen.result()


def test_a_view_that_leaves_by_an_exception_gives_the_cursor_back():
    out = io.StringIO()

    def interrupted():
        with LiveView(Console(file=out, force_terminal=True)) as view:
            view.stage_started("train")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    hidden, shown = out.getvalue().rfind("\x1b[?25l"), out.getvalue().rfind("\x1b[?25h")
    assert -1 < hidden < shown


def test_the_phase_bar_is_always_as_long():
    shares = {"forward": 0.31, "backward": 0.33, "wait": 0.21, "data": 0.15}
    assert len(rank_line(0, shares).plain.split(" compute")[0]) == len(rank_line(7, {}).plain.split(" compute")[0])


def test_hostile_text_reaches_no_terminal():
    lines: list[str] = []
    view = PlainView(lines.append, clock=lambda: 100.0)
    view.note("\x1b[2Jgone\x07")
    view.progress("train", GangEvent(kind="waiting", text="\x1b]0;title\x07who"))
    assert not any("\x1b" in line or "\x07" in line for line in lines)


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_or_a_dumb_terminal_gives_plain_lines(monkeypatch, variable, value):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert isinstance(choose_view(json=False), PlainView)
    assert isinstance(choose_view(json=True), JsonView)


def test_of_a_cancelled_run_only_what_was_done_is_kept():
    ran = {"started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T00:00:01Z"}
    stages = {
        "resolve": StageInfo(state="done", **ran),
        "build": StageInfo(state="done", **ran),
        "plan": StageInfo(state="cancelled", **ran),
        "submit": StageInfo(state="skipped"),
    }
    assert found_line(replace(records.bare(), stages=stages)).endswith(": resolve, build are done")

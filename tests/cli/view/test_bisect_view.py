"""What is seen of a search while it goes on: a line per answer, the strip, no cursor moves where nobody looks."""

from dataclasses import replace

from tests.report import records
from tests.report.bisection.test_bisect import state

from gangline.cli.view.bisect_view import BisectView
from gangline.launch.protocol import GangEvent


def test_each_answer_is_a_line_and_the_strip_follows(capsys):
    view = BisectView()
    known = state(None)
    blank = replace(known, suspects=tuple(replace(each, side="unknown", values={}) for each in known.suspects))
    ends = replace(blank, suspects=(known.suspects[0], *blank.suspects[1:-1], known.suspects[-1]))
    for each in (blank, ends, known):
        view.tell(each)
    lines = capsys.readouterr().err.splitlines()
    assert [line[0] for line in lines] == ["✓", "✗", " ", "✓", "✗", " "]
    assert "✓··········✗   about 4 more commits to measure" in lines[2]
    assert "✓·····✓✗···✗   nothing left to measure" in lines[5]
    assert "good, 2 seeds, trained" in lines[0]


def test_a_note_of_each_training_is_said_once(capsys):
    view = BisectView()
    for seed in (1, 2):
        view.note(f"an experiment: train.stop_at=10, train.seed={seed} on the command line; never a base")
        view.note("nothing is published from here")
        view.note(f"rank {seed} is slow")
    said = capsys.readouterr().err
    assert (said.count("an experiment"), said.count("nothing is published"), said.count("is slow")) == (1, 1, 2)


def test_without_a_terminal_nothing_moves_and_with_json_nothing_is_said(capsys):
    view = BisectView()
    view.run_started(records.bare())
    view.progress("train", GangEvent(kind="progress", data={"step": 3}))
    said = capsys.readouterr().err
    assert "training 9f31c2a0" in said
    assert "\r" not in said
    quiet = BisectView(quiet=True)
    quiet.run_started(records.bare())
    quiet.tell(state())
    assert capsys.readouterr().err == ""

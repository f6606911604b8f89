"""Screen of a search: what is new, once; text of others steers no terminal."""

import json
from dataclasses import replace

from tests.search.functions import FunctionRuns, MemoryStore, make_driver, make_request

from gangline.cli.view.search_view import SearchScreen, answer_lines, state_line, strip, trial_line
from gangline.spec.search import SearchAnswer, Trial


def view(**limits):
    request = make_request()
    return make_driver(MemoryStore(), request, FunctionRuns(request), **limits).run()


def test_every_trial_is_shown_once_and_its_end_again(capsys):
    done = view(budget_hours=20.0, trial_hours=0.1)
    begun = replace(done, trials=(Trial(number=0, state="running", settings={}),))
    screen = SearchScreen()
    for each in (begun, begun, done, done):
        screen.show(each)
    screen.end(done)
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("   0  ") for line in lines) == 1
    assert sum("best so far" in line for line in lines) == 1
    assert "12 of 12" in lines[-2]
    assert "of 20 CPU-h" in lines[-2]
    assert "unconfirmed" in lines[-1]


def test_json_lines_have_each_change_and_the_whole_at_the_end(capsys):
    done = view()
    screen = SearchScreen(json=True)
    screen.show(done)
    screen.note("waits")
    screen.note("waits")
    screen.end(done)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in events] == ["trial"] * 12 + ["note", "search"]
    assert events[-1]["search"]["best"] == done.best


def test_a_verdict_says_both_numbers_and_what_to_do_next():
    answer = SearchAnswer(
        trial=3, settings={}, verdict="BETTER", metric="m", winner=2.321, base=2.371, band_percent=0.6
    )  # fmt: skip
    first, second = answer_lines(replace(view(), answer=answer))
    assert first.startswith("BETTER  trial 3 on fresh seeds: m 2.321 against 2.371")
    assert "matters most: a.lr" in first
    assert "gangline search apply s-00000000-aaaa" in second


def test_hostile_text_of_a_run_paints_nothing():
    done = view()
    trial = Trial(number=1, state="failed", settings={"a": "\x1b[2J" * 90}, reason="\x1b]0;x\x07" + "y" * 900)
    line = trial_line(done, trial)
    assert "\x1b" not in line
    assert len(line) < 400
    waits = replace(done, trials=(Trial(number=0, state="waiting", settings={}, reason="\x1b[31mteam-a"),))
    assert "\x1b" not in state_line(waits)
    assert strip(waits) == "."

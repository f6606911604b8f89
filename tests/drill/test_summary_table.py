"""The table of all drills: what was promised, what was seen, and why a drill is missing."""

from gangline.drill.run import SkippedDrill, drill_table
from gangline.spec.measurements import Drill

HELD = Drill(
    name="kill-rank", row="T1", result="held", seen="rank 1 ended by signal 9", detect_seconds=0.12,
    recover_seconds=4.56, lost_steps=3, lost_samples=0, repeated_samples=0,
)  # fmt: skip
BROKEN = Drill(
    name="poison",
    row="T9",
    result="broken",
    reason="step 5 was saved after the fault",
    lost_samples=2,
    repeated_samples=1,
)
NONE = SkippedDrill(name="resize", row="T7", skipped="the line trains on one number of ranks")


def test_each_drill_has_its_promise_what_was_seen_and_its_verdict():
    lines = drill_table([HELD, BROKEN, NONE], width=120)
    text = " ".join(" ".join(lines).split())
    for words in (
        "<= 15 s",
        "rank 1 ended by signal 9",
        "0.1 s 4.6 s HELD",
        "step 5 was saved",
        "BROKEN",
        "SKIPPED",
        "trains on one",
    ):
        assert words in text, words
    counts, samples = lines[-1].split("; ")
    assert counts == "1 held, 0 held late, 1 broken, 0 not struck, 1 skipped"
    assert samples == "samples lost 2, taken twice 1, counted in 2 of 2 trainings"


def test_no_line_is_wider_than_the_terminal():
    long = Drill(name="kill-store", row="S6", result="broken", reason="what broke " * 40)
    assert max(len(line) for line in drill_table([HELD, long, NONE], width=110)[:-1]) <= 110

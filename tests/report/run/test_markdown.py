"""The comment: within what a forge takes, the verdict always, escaped everywhere."""

from dataclasses import replace

from tests.report import records

from gangline.report.run.markdown import LIMIT, render_markdown
from gangline.spec.record import Waiting

EVIL = "@everyone #12 [x](javascript:1) | <details> `$()` %0a \x1b[31m \u202e ![i](http://x/y.png)"


def test_first_line_is_the_verdict():
    assert render_markdown(records.refused()).startswith("**✗ refused** eval\\_loss is outside the band")


def test_largest_record_fits_a_comment():
    assert len(render_markdown(records.large())) <= LIMIT


def test_parts_fall_away_from_the_end_and_the_verdict_stays():
    record = records.large()
    long = "w " * 200
    fat = replace(
        record,
        events=tuple(replace(event, text=long) for event in record.events),
        artifacts=tuple(replace(a, key=f"{i}/" + "k" * 290) for i, a in enumerate(record.artifacts * 2)),
        commit=replace(record.commit, changed=tuple(f"{i}/" + "p" * 190 for i in range(100))),
    )
    text = render_markdown(fat)
    assert len(text) <= LIMIT
    assert text.startswith("**✗ refused**")
    assert "<summary>artifacts</summary>" not in text
    assert "<summary>stages</summary>" in text


def test_hostile_names_and_sentences_stay_text():
    record = records.refused()
    hostile = replace(
        record,
        run=replace(record.run, reason=EVIL),
        metrics={EVIL: record.metrics["eval_loss"]},
        links={"bad": "javascript:alert(1)", "good": "https://example.org/a b>c"},
        commit=replace(record.commit, changed=(EVIL,)),
    )
    text = render_markdown(hostile)
    assert "@everyone" not in text
    assert " #12" not in text
    assert "[x](javascript" not in text
    assert "](<https://example.org/a%20b%3Ec>)" in text
    assert "\x1b" not in text
    assert text.count("<details>") == text.count("</details>")


def test_a_waiting_gang_says_who_holds_the_place():
    record = records.bare()
    gang = replace(records.passed().gang, waiting=Waiting(who="vision holds 8 of 16", until="14:50"))
    text = render_markdown(replace(record, gang=gang))
    assert text.startswith("**▸ waits** vision holds 8 of 16 until 14:50")


def test_a_forks_run_says_who_may_let_it_run():
    record = records.bare()
    fork = replace(record, commit=replace(record.commit, trust="fork"))
    assert render_markdown(fork).startswith("**▸ waits** for a maintainer")
    assert f"`gangline approve {record.run.id}`" in render_markdown(fork)


def test_a_refused_metric_is_bisected_from_its_base():
    record = records.refused()
    ends = f"--good {record.commit.base.commit[:8]} --bad {record.commit.sha[:8]}"
    assert f"`gangline bisect eval_loss {ends}`" in render_markdown(record)


def test_both_curves_are_drawn_on_one_scale():
    record = records.refused()
    line = next(line for line in render_markdown(record).splitlines() if line.startswith("loss base"))
    base, this = line.split("`")[1::2]
    assert len(base) == len(this) == 16
    assert base != this

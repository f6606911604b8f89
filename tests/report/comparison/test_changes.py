"""Files that no key declares, of two runs: what differs is named with its digests, and what cannot be told is said."""

from dataclasses import replace

import pytest
from tests.report import records

from gangline.report.comparison.compare import compare
from gangline.report.comparison.pages import render_html_comparison, render_markdown_comparison
from gangline.report.comparison.text import render_comparison
from gangline.report.run.html import render_html
from gangline.spec.program_files import RuntimeReport, UndeclaredRead
from gangline.spec.record import Base, Gate

BASE = records.passed()
LABELS = UndeclaredRead(path="/d/labels.txt", size_bytes=2, mtime_ns=1, ctime_ns=2, sha256="a" * 64)
FLIPPED = replace(LABELS, mtime_ns=3, ctime_ns=4, sha256="b" * 64)


def reading(*reads, unseen="", **fields):
    """A run whose ranks read these, and whose gate names as uncompared what they could not report."""
    item = {"name": "data", "pinned": "unknown", "by": "none declared; read 1 file", "uncompared": unseen}
    gate = Gate(name="reproducible", verdict="unknown", reason="", evidence={"items": [item]})
    ran = RuntimeReport(**{"reads": reads, "num_reads": len(reads), **fields})
    return replace(BASE, ran=ran, gates=(gate,))


def change_of(base, this):
    (change,) = compare(base, this).changes
    return f"{change.kind} {change.name} {change.base} -> {change.this}"


def test_a_file_of_the_same_size_with_other_content_is_the_change():
    assert change_of(reading(LABELS), reading(FLIPPED)) == (
        "read undeclared file /d/labels.txt 2 B, aaaaaaaa -> 2 B, bbbbbbbb"
    )


def test_a_file_that_was_touched_and_holds_the_same_is_no_change_and_leaves_no_doubt():
    comparison = compare(reading(LABELS), reading(replace(FLIPPED, sha256=LABELS.sha256)))
    assert (comparison.changes, comparison.unpinned) == ((), ())


def test_files_that_one_run_alone_read_are_counted_where_the_other_list_is_whole():
    more = [replace(LABELS, path=f"/d/{name}") for name in "ab"]
    assert change_of(reading(LABELS), reading(LABELS, *more)) == (
        "read 2 undeclared files, such as /d/a not read -> 2 B, aaaaaaaa"
    )
    assert change_of(reading(LABELS), reading(FLIPPED, *more)) == (
        "read 3 undeclared files, such as /d/labels.txt 2 B, aaaaaaaa -> 2 B, bbbbbbbb"
    )
    assert change_of(reading(LABELS), reading()) == "read undeclared file /d/labels.txt 2 B, aaaaaaaa -> not read"
    many = compare(reading(LABELS, num_reads=400), reading(LABELS, *more, num_reads=400))
    assert many.changes == ()
    assert many.unpinned == ("data: read files that are not listed, because ranks read so many",)


def test_names_in_a_listed_folder_are_compared_too():
    folder = replace(LABELS, path="/d/", size_bytes=48)
    before, after = (
        reading(listed=(each,), num_listed=1) for each in (folder, replace(folder, size_bytes=49, sha256="b" * 64))
    )
    assert change_of(before, after) == "read undeclared folder /d/ 48 names, aaaaaaaa -> 49 names, bbbbbbbb"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (replace(LABELS, sha256=""), replace(FLIPPED, sha256="")),
        (LABELS, replace(LABELS, changed=True)),
    ],
    ids=["large", "changed during a run"],
)
def test_what_no_digest_tells_may_have_changed(before, after):
    comparison = compare(reading(before, unseen="reads of cat are not visible"), reading(after))
    assert comparison.changes == ()
    assert comparison.unpinned == ("data: read /d/labels.txt; reads of cat are not visible",)


def test_page_report_markdown_and_terminal_say_the_same_of_runs_without_a_known_change():
    base = reading(LABELS, unseen="none declared; reads of cat are not visible")
    comparison = compare(base, base)
    commit = replace(base.commit, base=Base(commit=base.commit.sha, run=base.run.id))
    shown = [
        render_comparison(comparison), render_markdown_comparison(comparison), render_html_comparison(comparison),
        render_html(replace(base, commit=commit), base),
    ]  # fmt: skip
    for text in shown:
        assert "nothing that records have changed: same line, code, environment, plan and declared data" in text
        assert "may have changed, too: data: none declared; reads of cat are not visible" in text


def test_a_long_path_is_shortened_so_that_both_contents_are_seen():
    path = f"/data/{'deep/' * 40}labels.txt"
    base, this = (reading(replace(each, path=path)) for each in (LABELS, FLIPPED))
    line = next(each for each in render_comparison(compare(base, this)).splitlines() if each.startswith("one change"))
    assert line.endswith("deep/labels.txt 2 B, aaaaaaaa -> 2 B, bbbbbbbb")
    assert len(line) <= 100

"""Workers of a parameter server on every surface of a report."""

from dataclasses import replace

from tests.report.records import passed

from gangline.report.gang_bars import worker_rows, workers_words
from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.spec.parameter_server import WorkersSummary, WorkerTotals

FOUND = WorkersSummary(
    workers=(
        WorkerTotals(
            worker=1, blocks=60, seconds=5700.0, sent_bytes=12_600_000_000, received_bytes=47_400_000_000,
            silent_seconds=0.0,
        ),
        WorkerTotals(
            worker=2, blocks=20, seconds=5600.0, sent_bytes=4_200_000_000, received_bytes=15_800_000_000,
            silent_seconds=180.0,
        ),
    ),
    merges=41, age_mean=0.6, dropped=2, refused=0,
)  # fmt: skip


def trained_by(workers):
    """A record of a run with these workers."""
    record = passed()
    return replace(record, training=replace(record.training, workers=workers))


def test_line_has_blocks_by_worker_ages_bytes_and_what_was_discarded():
    assert workers_words(FOUND) == (
        "blocks by worker 1: 60, 2: 20 \u00b7 41 merges, age of pushes 0.6 on average"
        " \u00b7 2 blocks dropped, 0 refused \u00b7 17 GB sent, 63 GB received \u00b7 3 min 0 s without the store"
    )


def test_workers_whose_pushes_were_not_read_are_not_known():
    unread = replace(FOUND, workers=())
    assert "blocks by worker not known" in workers_words(unread)
    assert worker_rows(unread) == []
    assert "Blocks by worker are not known" in render_html(trained_by(unread))


def test_every_surface_names_the_workers():
    record = trained_by(FOUND)
    html = render_html(record)
    assert '<th scope="row">2</th><td class="num">20</td>' in html
    assert "worker 1: 60 blocks" in html
    for surface in (html, page(record), render_markdown(record)):
        assert "age of pushes 0.6 on average" in surface


def test_a_run_of_one_gang_has_no_workers():
    assert "<h2>Workers</h2>" not in render_html(passed())

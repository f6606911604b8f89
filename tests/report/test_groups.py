"""Groups of servers: the matrix of edges and what leaves each group; nothing where groups are not known."""

from dataclasses import replace

from tests.report.records import passed

from gangline.report.gang_bars import MOST_GROUPS, group_rows
from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.spec.measurements import GroupEdges, RankOrder
from gangline.spec.record import SPLIT, Event, Record


def ring(*edges) -> Record:
    record = passed()
    order = RankOrder(edges=tuple(GroupEdges(source=one, target=other, edges=count) for one, other, count in edges))
    return replace(record, gang=replace(record.gang, order=order))


def test_rows_are_groups_and_cells_are_edges_to_the_others():
    rows = group_rows(ring(("/g1", "/g1", 3), ("/g1", "east/g2", 1), ("east/g2", "/g1", 1), ("east/g2", "east/g2", 7)))
    assert [(row.name, row.cells, row.leaving) for row in rows] == [("g1", ["3", "1"], 1), ("east/g2", ["1", "7"], 1)]


def test_report_draws_the_matrix_where_the_record_has_it_and_nothing_else():
    assert "flows on uplinks" in render_html(ring(("/g1", "/g2", 2), ("/g2", "/g1", 2)))
    assert "flows on uplinks" not in render_html(passed())
    assert group_rows(ring(("/g1", "/g1", 4))) == []
    many = [(f"/{place}", f"/{(place + 1) % (MOST_GROUPS + 1)}", 1) for place in range(MOST_GROUPS + 1)]
    assert group_rows(ring(*many)) == []


def test_measured_speeds_are_next_to_the_edges():
    record = ring(("/g1", "/g2", 2), ("/g2", "/g1", 2))
    edges = tuple(replace(each, bytes_per_second=1.2e9) for each in record.gang.order.edges[:1])
    order = RankOrder(edges=(*edges, *record.gang.order.edges[1:]))
    rows = group_rows(replace(record, gang=replace(record.gang, order=order)))
    assert [row.cells for row in rows] == [["", "2 · 1.2 GB/s"], ["2", ""]]


def test_names_of_groups_are_escaped():
    assert "<script>" not in render_html(ring(("<script>", "/g2", 1), ("/g2", "<script>", 1)))


def test_what_the_order_was_to_cost_is_shown_next_to_what_it_is():
    record = passed()
    planned = replace(record, plan=replace(record.plan, network="groups 2 (bound 2) · computed"))
    assert "Planned, by formula: groups 2 (bound 2)" in render_html(planned)
    assert "network, planned: groups 2 (bound 2) · computed" in page(planned)


def test_tiles_that_do_not_stand_as_the_plan_wants_are_reported_on_every_surface_while_they_do_not():
    record, text = passed(), "1 of 2 tiles of 2 nodes does not share a group"
    event = Event(time="2026-11-27T07:00:00Z", stage="train", kind=SPLIT, text=text)
    split = replace(record, gang=replace(record.gang, order=RankOrder(num_split=1)), events=(event,))
    assert f"network, found: {text}" in page(split)
    assert text in render_markdown(split).partition("<details>")[0]
    assert f"Found: {text}." in render_html(split)
    mended = replace(split, gang=replace(record.gang, order=RankOrder(num_split=0)))
    assert text not in page(mended)
    assert text not in render_markdown(mended).partition("<details>")[0]

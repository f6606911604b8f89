"""A plan that cuts along several axes says along which, wherever it is named; a plan of one axis has it in its name."""

from dataclasses import replace

import pytest
from tests.report.records import passed

from gangline.report.facts import mesh_words
from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import page
from gangline.spec.mesh import Mesh


@pytest.mark.parametrize("draw", [page, render_markdown, render_html])
def test_degrees_of_several_axes_are_said_next_to_the_name_of_the_plan(draw):
    record = passed()
    assert record.plan is not None
    cut = replace(record, plan=replace(record.plan, name="3d-8", mesh=Mesh(pp=2, dp_shard=2, tp=2)))
    assert "pp 2 × dp_shard 2 × tp 2" in draw(cut)
    assert "dp_replicate" not in draw(record)


@pytest.mark.parametrize("draw", [page, render_markdown, render_html])
def test_unlike_shares_of_replicas_are_said_where_there_are_any(draw):
    record = passed()
    assert record.plan is not None
    unlike = replace(record, plan=replace(record.plan, mesh=Mesh(dp_replicate=4), shares=(24, 24, 8, 8)))
    assert "samples by replica 2 x 24, 2 x 8" in draw(unlike)
    assert "samples by replica" not in draw(record)


def test_groups_of_experts_are_said_though_they_are_no_axis():
    assert mesh_words(Mesh(dp_shard=8, ep=4)) == "dp_shard 8, experts in 4"
    assert mesh_words(Mesh(dp_shard=8)) == mesh_words(Mesh()) == ""

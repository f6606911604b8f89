"""The picture of a model: what is alike is drawn once, each weight says how it is cut, text stays text."""

from types import SimpleNamespace

import pytest
import torch
from tests.train.gang import load_tiny, make_plan
from torch import nn

from gangline.report.model_page import axis_words, cut_words, render_model_page
from gangline.spec.mesh import Mesh
from gangline.spec.model_picture import ModelLayer, ModelPart, ModelPicture
from gangline.train.model.picture import picture_of
from gangline.train.parallel.model_parts import find_blocks
from gangline.train.task import ParallelHints

HINTS = ParallelHints(blocks="layers.*", tensor={"layers.*.inner": "colwise", "layers.*.outer": "rowwise"})


def picture(mesh, layers=3):
    model = load_tiny().Net(width=8, layers=layers)
    context = SimpleNamespace(plan=make_plan("fsdp", mesh=mesh, name="plan"))
    return picture_of(context, model, find_blocks(model, HINTS), HINTS)


def test_parts_stand_in_order_and_blocks_that_are_alike_are_one():
    found = picture(Mesh(dp_shard=2))
    assert [(part.name, part.last, part.repeats, part.is_block) for part in found.parts] == [
        ("first", "", 1, False), ("layers.0", "layers.2", 3, True), ("last", "", 1, False),
    ]  # fmt: skip
    assert sum(part.parameters * part.repeats for part in found.parts) == found.parameters
    assert [(each.name, each.shape, each.rule) for each in found.parts[1].layers] == [
        ("inner", (16, 8), "colwise"), ("outer", (8, 16), "rowwise"),
    ]  # fmt: skip
    assert ModelPicture.from_json(found.to_json()) == found


def test_block_unlike_its_neighbours_is_drawn_by_itself():
    model = nn.Module()
    with torch.device("meta"):
        model.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 8), nn.Linear(4, 4)])
    context = SimpleNamespace(plan=make_plan("none", mesh=Mesh()))
    hints = ParallelHints(blocks="layers.*")
    parts = picture_of(context, model, find_blocks(model, hints), hints).parts
    assert [(part.name, part.repeats) for part in parts] == [("layers.0", 2), ("layers.2", 1), ("layers.3", 1)]


@pytest.mark.parametrize(
    ("rule", "mesh", "said"),
    [
        ("colwise", Mesh(tp=2, dp_shard=4), "tp 2 by outputs · dp_shard 4"),
        ("rowwise", Mesh(tp=2), "tp 2 by inputs"),
        ("colwise_gather", Mesh(tp=2), "tp 2 by outputs"),
        ("embed", Mesh(tp=4), "tp 4 by rows"),
        ("sequence", Mesh(tp=2), ""),
        ("", Mesh(tp=2), ""),
        ("colwise", Mesh(dp_replicate=2), ""),
    ],
)
def test_weight_says_how_it_is_cut(rule, mesh, said):
    assert cut_words(ModelLayer(name="w", kind="Linear", shape=(8, 4), parameters=32, rule=rule), mesh) == said


def test_axes_in_use_are_explained_and_others_are_not():
    assert [axis for axis, _ in axis_words(Mesh(pp=2, dp_shard=4, ep=2))] == ["pp 2", "dp_shard 4", "ep 2"]
    assert axis_words(Mesh()) == []


def test_page_draws_each_weight_and_escapes_what_it_is_given():
    page = render_model_page("run-1", picture(Mesh(dp_shard=2, tp=2)))
    assert page.count("<svg") == 4
    assert "3 ×" in page
    assert "layers.0 … layers.2" in page
    evil = ModelPicture(
        kind="<script>", parameters=1, plan="<b>", strategy="none", mesh=Mesh(),
        parts=(ModelPart(name="<i>", kind="K", parameters=1,
                    layers=(ModelLayer(name='"><u>', kind="<u>", shape=(1,), parameters=1),)),),
    )  # fmt: skip
    drawn = render_model_page("<img>", evil)
    assert not any(word in drawn for word in ("<script", "<b>plan", "<u>", "<img>", "<i>"))

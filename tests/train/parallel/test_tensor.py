"""Modules cut by their rule words, against one process that holds them whole."""

import pytest
from tests.train.parallel.wording import CODE, finish, gap, losses_of, one_process, words_plan

from gangline.spec.mesh import Mesh
from gangline.spec.plan import Memory

GATE = 1e-5


def proves(what, mesh, task, marks=(), **model):
    mark = pytest.mark.proves(what, oracle="one process, weights after 6 AdamW steps", gate="1e-5")
    return pytest.param(mesh, task, model, marks=[mark, *marks], id=f"{what}-{task}")


@pytest.mark.parametrize(
    ("mesh", "task", "model"),
    [
        proves("tp", Mesh(tp=2), "Cut"),
        proves("tp", Mesh(tp=2), "CutAll", [pytest.mark.slow], tied=True),
        proves("sequence parallel", Mesh(tp=2), "CutSequence", [pytest.mark.long]),
        proves("loss parallel", Mesh(tp=2), "CutLoss", [pytest.mark.long]),
        proves("dp_shard x tp", Mesh(dp_shard=2, tp=2), "CutAll", [pytest.mark.long]),
        proves("dp_replicate x tp", Mesh(dp_replicate=2, tp=2), "CutAll", [pytest.mark.slow]),
        proves("tp", Mesh(tp=4), "CutAll", [pytest.mark.slow], kv_heads=4),
        proves("dp_shard x tp", Mesh(dp_shard=2, tp=2), "Cut", [pytest.mark.slow]),
        proves("dp_replicate x tp", Mesh(dp_replicate=2, tp=2), "Cut", [pytest.mark.slow]),
        proves("dp_replicate x dp_shard x tp", Mesh(dp_replicate=2, dp_shard=2, tp=2), "CutAll", [pytest.mark.slow]),
    ],
)
def test_cut_modules_train_the_weights_of_whole_ones(make_gang, reached, mesh, task, model):
    gang = finish(make_gang(CODE), words_plan(mesh, task, model=model))
    difference = gap(gang, one_process(**model))
    reached(difference)
    assert difference <= GATE


@pytest.mark.parametrize(
    ("mesh", "changes"),
    [
        pytest.param(Mesh(tp=2), {"memory": Memory(activation_checkpointing="full", loss_chunks=2)}, id="memory"),
        pytest.param(Mesh(dp_shard=2, tp=2), {"memory": Memory(activation_checkpointing="selective", loss_chunks=3)},
                     id="memory and shards", marks=pytest.mark.slow),
        pytest.param(Mesh(pp=2, tp=2), {}, id="stages", marks=pytest.mark.slow),
        pytest.param(Mesh(pp=2, dp_replicate=2, tp=2), {}, id="stages and copies", marks=pytest.mark.slow),
    ],
)  # fmt: skip
@pytest.mark.long
def test_whatever_else_a_plan_asks_for_leaves_the_weights_as_they_are(make_gang, mesh, changes):
    gang = finish(make_gang(CODE), words_plan(mesh, "CutAll", **changes))
    assert gap(gang, one_process()) <= GATE


def test_dropout_drops_for_all_peers_what_one_rank_would_drop(make_gang):
    """Each micro-batch as one rank sees it; what single heads and parts of a sequence drop, each peer draws."""
    plan = words_plan(Mesh(), "Cut", model={"dropout": 0.3}, steps=3)
    whole = finish(make_gang(CODE), plan)
    cut = finish(make_gang(CODE), words_plan(Mesh(tp=2), "Cut", model={"dropout": 0.3}, steps=3))
    assert losses_of(cut) == pytest.approx(losses_of(whole), rel=1e-5)


@pytest.mark.long
def test_norm_over_every_mesh_is_that_of_one_process(make_gang):
    norms = []
    for mesh in (Mesh(), Mesh(dp_shard=2, tp=2)):
        gang = finish(make_gang(CODE), words_plan(mesh, "CutAll", steps=2))
        norms.append([line["gradient_norm"] for line in gang.metrics()])
    assert norms[1] == pytest.approx(norms[0], rel=1e-6)


def test_evaluation_sees_whole_logits(make_gang):
    metrics = []
    for mesh in (Mesh(), Mesh(tp=2)):
        gang = finish(make_gang(CODE), words_plan(mesh, "CutAll", steps=1))
        metrics.append(gang.result().jobs[0].metrics)
    assert metrics[0].keys() == {"eval_loss", "error"}
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-6)


@pytest.mark.parametrize("precision", [pytest.param("bf16", marks=pytest.mark.slow), "fp16"])
@pytest.mark.parametrize(
    "mesh", [Mesh(tp=2), pytest.param(Mesh(dp_shard=2, tp=2), marks=pytest.mark.slow)], ids=["tp", "dp_shard x tp"]
)
@pytest.mark.long
def test_half_precision_stays_near(make_gang, precision, mesh):
    gang = finish(make_gang(CODE), words_plan(mesh, "CutAll", steps=4, precision=precision))
    assert losses_of(gang) == pytest.approx(one_process(steps=4)[1], rel=2e-2)

"""Head and loss by chunk give what the whole gives, and never hold the outputs whole."""

import re
from dataclasses import replace

import pytest
import torch
from tests.oracles.allocator import counted
from tests.train.gang import ROOT
from tests.train.parallel.memory_plans import MODEL, one_process, plan_of, sequences
from tests.train.trained import trained, weight_gap
from torch.utils.data import default_collate

from gangline.errors import ConfigError
from gangline.spec.mesh import Mesh
from gangline.spec.plan import ProgramSpec
from gangline.train.parallel.chunked_loss import ChunkedLoss, loss_by_chunks


@pytest.mark.proves("loss_chunks", oracle="one process", gate="1e-6")
@pytest.mark.parametrize(
    ("strategy", "task", "chunks"),
    [
        ("none", "Samples", 2), ("fsdp", "Sequences", 4),
        pytest.param("none", "Sequences", 5, marks=pytest.mark.slow),
        pytest.param("ddp", "Sequences", 3, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_chunked_loss_trains_the_weights_of_one_process(make_gang, reached, strategy, task, chunks):
    wanted, losses = one_process()
    found, own = trained(make_gang(), plan_of(strategy, task, memory={"loss_chunks": chunks}))
    assert weight_gap(found, wanted) <= 1e-6
    assert own == pytest.approx(losses, rel=1e-6)
    reached(weight_gap(found, wanted))


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("Headless", "wanted hints.head, the name of the method or module of Reader that makes outputs"),
        (
            "Later",
            "whose last step is hints.head 'norm', called once, found 1 calls and more after them",
        ),
    ],
)
def test_task_that_does_not_say_what_its_head_is_gets_reported(task, sentence):
    made = getattr(sequences(), task)()
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        loss_of(made, chunks=2)


def test_module_or_method_may_be_the_head():
    losses = [loss_of(getattr(sequences(), task)(), chunks=4) for task in ("Sequences", "Ending")]
    assert losses[0].total.isfinite()
    assert losses[1].total.isfinite()


def test_order_of_modules_and_calls_without_a_loss_stay_as_they_were():
    task = sequences().Ending()
    model = task.build_model(MODEL)
    names, batch = list(model.state_dict()), batch_of(task)
    outputs = model(batch["tokens"])
    chunked = ChunkedLoss(model, task.hints, task.loss, chunks=3)
    chunked.of(lambda given: model(given["tokens"]), batch)
    assert list(model.state_dict()) == names
    assert torch.equal(model(batch["tokens"]), outputs)


@pytest.mark.parametrize("chunks", [1, 5, 12, 100])
def test_sums_add_up_whatever_the_number_of_chunks(chunks):
    task = sequences().Sequences()
    model, batch = task.build_model(MODEL), batch_of(task)
    whole = task.loss(model(batch["tokens"]), batch)
    found = ChunkedLoss(model, task.hints, task.loss, chunks=chunks).of(lambda own: model(own["tokens"]), batch)
    torch.testing.assert_close(found.total, whole.total)
    assert found.weight == whole.weight


def test_keys_of_another_length_than_the_outputs_are_named():
    hidden, batch = torch.zeros(2, 6, 4), {"targets": torch.zeros(2, 5)}
    with pytest.raises(ConfigError, match=r"wants 6 positions as the last block has, found \{'targets': \(2, 5\)\}"):
        loss_by_chunks(hidden, batch, torch.nn.Identity(), None, chunks=2, sequence={"targets": 1})


def test_outputs_are_never_whole():
    """Peak of forward and backward above what the model itself holds, by the allocator."""
    peaks = {chunks: peak(chunks) for chunks in (1, 8)}
    outputs = 4 * 8 * LENGTH * VOCABULARY  # bytes of them in fp32; cross entropy keeps as much again
    assert peaks[1] > 2 * outputs
    assert peaks[8] < 0.6 * outputs


VOCABULARY, LENGTH = 4096, 64


def peak(chunks):
    head, hidden = torch.nn.Linear(16, VOCABULARY), torch.randn(8, LENGTH, 16, requires_grad=True)
    batch = {"targets": torch.randint(VOCABULARY, (8, LENGTH))}
    loss = sequences().Sequences().loss

    def step():
        given = {"chunks": chunks, "sequence": {"targets": 1}}
        made = loss_by_chunks(hidden, batch, head, loss, **given) if chunks > 1 else loss(head(hidden), batch)
        made.total.backward()

    step()
    with counted() as bytes_:
        step()
    return bytes_.peak


def loss_of(task, *, chunks):
    model, batch = task.build_model(MODEL), batch_of(task)
    return ChunkedLoss(model, task.hints, task.loss, chunks=chunks).of(lambda own: model(own["tokens"]), batch)


def batch_of(task):
    return default_collate([task.build_data("train", {})[index] for index in range(4)])


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["tp", "cp"])
def test_chunks_compose_with_cut_modules_and_cut_sequences(make_gang, axis):
    """The same run with and without, where ranks hold parts of a module or of a sequence."""
    weights = []
    for chunks in (1, 3):
        plan = plan_of(strategy="none", memory={"loss_chunks": chunks}, steps=3)
        plan = replace(
            plan, strategy=axis, mesh=Mesh(**{axis: 2}), program=ProgramSpec(task="model:Long"), model={"layers": 2}
        )
        weights.append(trained(make_gang(ROOT / "tests" / "train" / "long"), plan)[0])
    assert weight_gap(*weights) <= 1e-6

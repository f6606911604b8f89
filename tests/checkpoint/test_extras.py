"""Tensors beside model and optimizer: back where the plan asks for the same, told and left out where it changed."""

import pytest
import torch
from tests.checkpoint.forked import run_gang
from tests.checkpoint.layouts import Layout, build
from tests.checkpoint.small import KEY, PREFIX, saver, trained

from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.checkpoint.loader import load
from gangline.storage.folder.store import FolderStore


def save(rank, group, root):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    model, optimizer = build(Layout("ddp", 2), rank, seed=1)
    mesh = init_device_mesh("cpu", (2,))
    momentum = distribute_tensor(torch.arange(7.0), mesh, [Shard(0)], src_data_rank=None)
    saver(FolderStore(root), group=group).save(
        model, optimizer, {}, step=1, wait=True, extra={"momentum": momentum, "anchor": torch.ones(3)},
        rank_extra={"residual": torch.full((2 + rank,), float(rank))},
    )  # fmt: skip


def reopen(rank, group, root):
    model, optimizer = build(Layout("ddp", 2), rank, seed=9)
    extra = {"momentum": torch.zeros(7), "anchor": torch.zeros(3)}
    loaded = load(FolderStore(root), PREFIX, model, optimizer, key=KEY, group=group, extra=extra)
    lists = {name: tensor.tolist() for name, tensor in (extra | loaded.rank_extra).items()}
    return lists, loaded.notes


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = str(tmp_path_factory.mktemp("extras"))
    run_gang(2, save, root)
    return root


def test_extras_come_back_each_rank_its_own(root):
    for rank, (found, notes) in enumerate(run_gang(2, reopen, root)):
        assert found == {
            "momentum": [0, 1, 2, 3, 4, 5, 6], "anchor": [1, 1, 1], "residual": [rank] * (2 + rank),
        }  # fmt: skip
        assert notes == ()


def test_own_tensors_of_another_number_of_ranks_are_left_out_and_reported(root):
    [(found, notes)] = run_gang(1, reopen, root)
    assert found == {"momentum": [0, 1, 2, 3, 4, 5, 6], "anchor": [1, 1, 1]}
    [note] = notes
    assert note == (
        "tensors of single ranks (rank/00000-of-00002/residual, ...) belong to another number of ranks: they are not "
        "loaded"
    )


def test_extras_of_a_changed_plan_start_again_and_are_reported(store):
    model, optimizer = trained()
    saver(store).save(model, optimizer, {}, step=1, wait=True, extra={"q": torch.ones(2, 2), "gone": torch.ones(1)})
    extra = {"q": torch.zeros(2, 3), "new": torch.zeros(1)}
    loaded = load(store, PREFIX, model, optimizer, key=KEY, group=None, extra=extra)
    assert [each.sum().item() for each in extra.values()] == [0, 0]
    assert loaded.notes == (
        "extra/q is F32 (2, 2) in the checkpoint: it is initialized",
        "extra/new is not in the checkpoint: it is initialized",
        "extra/gone belongs to another plan: it is not loaded",
    )


def test_extras_are_no_part_of_the_proof(store):
    report = saver(store).save(*trained(), {}, step=1, wait=True, extra={"q": torch.ones(2)})
    names = stored_digests(store, report.key, KEY, optimizer=True)
    assert all(name.startswith(("model/", "optim/")) for name in names)

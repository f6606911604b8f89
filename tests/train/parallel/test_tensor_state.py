"""What one peer holds, and what must never be laid around it."""

import pytest
import torch
from tests.train.parallel.peers import made_up
from tests.train.parallel.wording import TASKS
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.tensor import DTensor

from gangline.train.parallel.data_parallel import replicate_module
from gangline.train.parallel.line_optimizer import split_groups_by_mesh
from gangline.train.parallel.tensor_parallel import TensorParallel
from gangline.train.task import ParallelHints

PAIR = ParallelHints(tensor={"0.inner": "colwise", "0.outer": "rowwise"})


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


def cut_pair(mesh):
    block = Pair()
    TensorParallel(PAIR, mesh).cut_block(block, "0")
    return block


def cut_words(mesh, task):
    model = TASKS.Words(width=32, heads=4, kv_heads=4)
    tensor = TensorParallel(task.hints, mesh)
    for number, block in enumerate(model.layers):
        tensor.cut_block(block, f"layers.{number}")
    tensor.finish(model)
    return model


def held(tensors):
    """Bytes of memory behind `tensors`, not only what they show of it."""
    local = [each.to_local() if isinstance(each, DTensor) else each for each in tensors]
    return sum(each.untyped_storage().nbytes() for each in local)


def state_bytes(model):
    """Parameters, gradients and AdamW's moments after a step."""
    optimizer = torch.optim.AdamW(model.parameters())
    split_groups_by_mesh(optimizer)
    out = model(torch.zeros(2, 12, dtype=torch.long))
    (out.full_tensor() if isinstance(out, DTensor) else out).sum().backward()
    optimizer.step()
    parameters = list(model.parameters())
    moments = [each for state in optimizer.state.values() for key, each in state.items() if key != "step"]
    return held(parameters), held([each.grad for each in parameters]), held(moments)


@pytest.mark.parametrize("peers", [2, 4])
@pytest.mark.parametrize("task", [TASKS.Cut, TASKS.CutAll])
def test_every_peer_holds_its_share_of_all_that_has_a_word(task, peers):
    whole = TASKS.Words(width=32, heads=4, kv_heads=4)
    with made_up(tp=peers) as mesh:
        model = cut_words(mesh, task)
        shared, rest = 0, 0
        for each in model.parameters():
            if isinstance(each, DTensor) and each.placements[0].is_shard():
                shared += 4 * each.numel() // peers
            else:
                rest += 4 * each.numel()
        found = state_bytes(model)
    assert found == (shared + rest, shared + rest, 2 * (shared + rest))
    everything = 4 * sum(each.numel() for each in whole.parameters())
    assert shared > 0.9 * everything / peers, "little of the model is held by all"


def test_optimizer_updates_cut_and_whole_parameters_in_groups_of_their_own():
    with made_up(tp=2) as mesh:
        model = nn.ModuleList([cut_pair(mesh), nn.Linear(2, 2)])
        optimizer = torch.optim.AdamW([{"params": list(model.parameters()), "lr": 0.5}], lr=0.1)
        split_groups_by_mesh(optimizer)
        kinds = [{type(each) for each in group["params"]} for group in optimizer.param_groups]
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]
    assert len(kinds) == 2
    assert all(len(each) == 1 for each in kinds)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 6


def test_torch_s_older_copies_are_still_a_trap_around_cut_modules():
    """Why `copies.py` is built on something else; once this fails, they may have learned it."""
    with made_up(dp=2, tp=2) as mesh:
        block = replicate(cut_pair(mesh["tp"]), process_group=mesh.get_group("dp"))
        with pytest.raises(RuntimeError, match=r"got mixed torch\.Tensor and DTensor"):
            block(torch.randn(4, 32))


def test_our_copies_leave_cut_parameters_what_they_are():
    """After a pass, too, they show all of themselves, and their gradients are cut as they are."""
    with made_up(dp=2, tp=2) as mesh:
        block = cut_pair(mesh["tp"])
        replicate_module(block, mesh["dp"], precision="fp32", is_root=True)
        block(torch.randn(4, 32)).sum().backward()
        parameters = dict(block.named_parameters())
    assert all(isinstance(each, DTensor) and isinstance(each.grad, DTensor) for each in parameters.values())
    assert sum(each.numel() for each in parameters.values()) == sum(each.numel() for each in Pair().parameters())

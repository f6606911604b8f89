"""Staging from a GPU: pinned buffers, one set, valid while the originals change; and a save that loads bit for bit."""

import torch
from tests.train.gpu import DEVICE, cuda_alone, on_gpu

from gangline.checkpoint.host_tensors import Staging
from gangline.checkpoint.loader import load
from gangline.checkpoint.saver import Saver
from gangline.storage.folder.store import FolderStore

pytestmark = on_gpu
PREFIX, KEY = "runs/b/c/r/checkpoints", b"k" * 32


def tensors():
    generator = torch.Generator().manual_seed(1)
    kinds = (torch.float32, torch.bfloat16, torch.float16)
    return {str(each): torch.randn(1 << 20, generator=generator).to(each).to(DEVICE) for each in kinds}


@cuda_alone
def test_what_comes_from_a_gpu_is_staged_in_pinned_memory():
    staged = Staging().copy(tensors())
    assert all(each.local.is_pinned() for each in staged.values())


def test_a_staged_copy_outlives_what_training_writes_next():
    live, staging = tensors(), Staging()
    wanted = {name: each.cpu().clone() for name, each in live.items()}
    staged = staging.copy(live)
    for each in live.values():
        each.zero_()
    for name, each in staged.items():
        assert torch.equal(each.local, wanted[name]), name


def test_a_second_save_takes_the_buffers_of_the_first():
    live, staging = tensors(), Staging()
    first = {name: each.local.data_ptr() for name, each in staging.copy(live).items()}
    assert {name: each.local.data_ptr() for name, each in staging.copy(live).items()} == first
    assert staging.size_bytes == sum(each.nbytes for each in live.values())


def test_what_was_saved_next_to_training_loads_to_the_same_bits(tmp_path):
    model, optimizer = trained(seed=1)
    wanted = [each.detach().clone() for each in state_of(model, optimizer)]
    store = FolderStore(tmp_path)
    saver = Saver(store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY, group=None, keep=1)
    saver.save(model, optimizer, {}, step=1, wait=False)
    step(model, optimizer)
    [report] = saver.wait()
    assert report.error is None
    other, its_optimizer = trained(seed=2)
    load(store, PREFIX, other, its_optimizer, key=KEY, group=None)
    found = state_of(other, its_optimizer)
    assert {each.device.type for each in found} == {DEVICE}
    assert all(map(torch.equal, found, wanted))


def trained(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    step(model, optimizer)
    return model, optimizer


def step(model, optimizer):
    model(torch.ones(8, 64, device=DEVICE)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def state_of(model, optimizer):
    moments = [optimizer.state[each][name] for each in model.parameters() for name in ("exp_avg", "exp_avg_sq")]
    return [*model.parameters(), *moments]

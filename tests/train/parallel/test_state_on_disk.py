"""Optimizer state in files: the same bits, a bounded part of it in memory, no trace after the end."""

import subprocess
from dataclasses import replace

import pytest
import torch
from tests.train.gang import KEY
from tests.train.parallel.memory_plans import plan_of
from tests.train.parallel.state_memory import resident
from tests.train.parallel.test_matrix_rule import RULES, gang_in
from tests.train.parallel.test_matrix_rule import plan_of as matrix_plan
from tests.train.trained import trained, weight_gap
from torch import nn

from gangline.checkpoint.format.stored_tensors import stored_digests
from gangline.errors import ConfigError, StorageError
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.routing import partition_params
from gangline.optim.rules.muon import Muon
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Memory
from gangline.train.parallel.state_on_disk import MatrixStateOnDisk, StateOnDisk

ON_DISK = {"offload": "optimizer_nvme"}
SMALL = 1 << 16
EVERY_THIRD = CheckpointPolicy(every=3, keep=9, asynchronous=False)


@pytest.mark.proves("offload optimizer_nvme", oracle="state in memory", gate="same bits")
@pytest.mark.parametrize("strategy", ["zero1", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_where_the_state_lies_changes_no_bit(make_gang, reached, strategy):
    """Resumed in the middle as well."""
    wanted, losses = trained(make_gang(), plan_of(strategy))
    gang, plan = make_gang(), plan_of(strategy, memory=ON_DISK, checkpoint=CheckpointPolicy(every=3))
    trained(gang, replace(plan, stop_at=3))
    found, own = trained(gang, plan)
    assert own == losses
    assert weight_gap(found, wanted) == 0
    reached(0.0)
    assert [each for each in gang.home.iterdir() if each.name.startswith("tmp")] == []


def test_state_in_files_continues_in_memory_under_another_strategy(make_gang):
    wanted, _ = trained(make_gang(), plan_of("fsdp"))
    gang = make_gang()
    half = plan_of("fsdp", memory=ON_DISK, stop_at=3, checkpoint=CheckpointPolicy(every=3))
    trained(gang, half)
    found, _ = trained(gang, plan_of("ddp"))
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("rule", "strategy", "mesh"),
    [
        ("muon", "zero1", Mesh(dp_replicate=2)),
        ("soap", "ddp", Mesh(dp_replicate=2)),
        pytest.param("muon", "ddp", Mesh(dp_replicate=2), marks=pytest.mark.long),
        pytest.param("muon", "fsdp", Mesh(dp_shard=2), marks=pytest.mark.long),
        pytest.param("shampoo", "hsdp", Mesh(dp_replicate=2, dp_shard=2), marks=pytest.mark.long),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_where_state_of_a_matrix_rule_lies_changes_no_bit(warm, tmp_path, rule, strategy, mesh):
    """Resumed in the middle as well."""
    found = []
    for name, memory, stops in (("memory", Memory(), (None,)), ("files", Memory(**ON_DISK), (3, None))):
        gang, data = gang_in(tmp_path / name, warm)
        plan = matrix_plan(strategy, mesh, data, optimizer=RULES[rule], memory=memory, checkpoint=EVERY_THIRD)
        for stop in stops:
            weights, losses = trained(gang, replace(plan, stop_at=stop))
        saved = [stored_digests(gang.store, each["key"], KEY, optimizer=True) for each in gang.events(event="saved")]
        found.append((losses, saved[-1]))
        found[-1] = (*found[-1], {each: tensor.tolist() for each, tensor in weights.items()})
        assert [each for each in gang.home.iterdir() if each.name.startswith("tmp")] == []
    assert found[0] == found[1]


def test_state_of_a_matrix_is_in_memory_while_a_step_uses_it(tmp_path, monkeypatch):
    """Resident bytes of the mapped files once each momentum advanced, and after the step."""
    model = nn.ModuleList(nn.Linear(512, 512, bias=False) for _ in range(16))
    rule, seen = Muon(lr=0.02, ns_steps=1, dtype="float32"), []
    files = MatrixStateOnDisk(list(model.parameters()), tmp_path, window_bytes=2 << 20)
    optimizer = MatrixOptimizer(partition_params(model), rule=rule, files=files)
    assert resident(tmp_path) == 0
    prepare = Muon.prepare
    monkeypatch.setattr(Muon, "prepare", lambda *args: (prepare(*args), seen.append(resident(tmp_path)))[0])
    for _ in range(2):
        for each in model.parameters():
            each.grad = torch.ones_like(each)
        optimizer.step()
    assert len(seen) == 2 * 16
    assert set(seen) == {512 * 512 * 4}  # one momentum of 16
    assert resident(tmp_path) == 0


def test_a_shard_without_rows_has_state_without_a_file(tmp_path):
    empty = nn.Parameter(torch.empty(0, 4))
    files = MatrixStateOnDisk([empty], tmp_path)
    files.created(empty, {empty: {"momentum": torch.empty(0, 4)}})
    files.used(empty)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("rule", "options"), [("AdamW", {"fused": True}), ("SGD", {"momentum": 0.9}), ("SGD", {}),
                                               ("Adam", {"amsgrad": True})])  # fmt: skip
def test_any_rule_of_torch_steps_as_in_memory(tmp_path, rule, options):
    models = [layers(), layers()]
    optimizers = [getattr(torch.optim, rule)(groups_of(model), lr=0.01, **options) for model in models]
    optimizers[1] = StateOnDisk(optimizers[1], tmp_path, window_bytes=SMALL)
    for _ in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            model(torch.ones(2, 100)).sum().backward()
            optimizer.param_groups[0]["lr"] *= 0.9
            optimizer.step()
            optimizer.zero_grad()
    assert all(map(torch.equal, models[0].parameters(), models[1].parameters()))
    assert list(tmp_path.iterdir()) == []


def test_parameters_without_gradients_have_no_state(tmp_path):
    model = layers()
    optimizer = StateOnDisk(torch.optim.AdamW(model.parameters()), tmp_path, window_bytes=SMALL)
    model[0](torch.ones(1, 100)).sum().backward()
    optimizer.step()
    assert set(optimizer.state) == set(model[0].parameters())
    model(torch.ones(1, 100)).sum().backward()
    optimizer.step()
    assert set(optimizer.state) == set(model.parameters())


def test_one_window_of_state_is_in_memory_at_a_time(tmp_path):
    """Resident bytes of the mapped files while each window is updated, and after the step."""
    model = nn.ModuleList(nn.Linear(512, 512, bias=False) for _ in range(16))
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    inner, seen = torch.optim.AdamW(model.parameters(), fused=True), []
    optimizer = StateOnDisk(inner, tmp_path, window_bytes=2 << 20)
    optimizer.step()
    step = inner.step
    inner.step = lambda: (step(), seen.append(resident(tmp_path)))
    optimizer.step()
    state = sum(value.nbytes for each in optimizer.state.values() for value in each.values())
    window = 2 * (2 << 20)  # both moments of two parameters
    assert state > 8 * window
    assert len(seen) == 8
    assert max(seen) <= 2 * window  # one in use, one read ahead
    assert resident(tmp_path) == 0


@pytest.fixture
def small_disk(tmp_path):
    """A folder with 64 KiB of room."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs leave to mount a tmpfs: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_full_disk_is_named_with_what_was_wanted(small_disk):
    model = layers()
    optimizer = StateOnDisk(torch.optim.AdamW(model.parameters()), small_disk)
    model(torch.ones(1, 100)).sum().backward()
    wanted = r"wanted 168 kB for optimizer state in .*, 66 kB are free there: .*No space left on device"
    with pytest.raises(StorageError, match=wanted):
        optimizer.step()
    assert list(small_disk.iterdir()) == []


def test_parameters_on_a_device_are_refused(tmp_path):
    optimizer = torch.optim.AdamW(nn.Linear(2, 2, device="meta").parameters())
    with pytest.raises(ConfigError, match=r"wanted parameters on the CPU, found them on meta"):
        StateOnDisk(optimizer, tmp_path)
    with pytest.raises(ConfigError, match=r"wanted parameters on the CPU, found them on meta"):
        MatrixStateOnDisk(list(nn.Linear(2, 2, device="meta").parameters()), tmp_path)


def layers():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 100), nn.Linear(100, 7))


def groups_of(model):
    """Two, one of which is split over windows."""
    return [{"params": list(model[:3].parameters())}, {"params": list(model[3].parameters()), "weight_decay": 0.1}]

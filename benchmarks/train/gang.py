"""A gang of this machine for a benchmark: store, code and gang in one folder, a model too small to take time."""

from pathlib import Path

from gangline.launch.local import LocalLauncher
from gangline.spec.gang.podset import PodSet
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Device, Plan, ProgramSpec, Recovery
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.code_layer import LayerFile, pack
from gangline.storage.open import open_store

NAME = "bench"
RANKS = 2
SMALL = '''
import torch


class Points:
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return {"x": torch.ones(64)}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(64, 64)])

    def forward(self, x):
        return self.layers[0](x)


class Small:
    """All but its loss."""

    def build_model(self, options):
        return Net()

    def build_data(self, split, options):
        return Points()
'''


def launch(
    folder: Path,
    files: dict[str, str],
    *,
    program: ProgramSpec,
    steps: int,
    checkpoint: CheckpointPolicy,
    recovery: Recovery | None = None,
    environ: dict[str, str] | None = None,
    grace_seconds: float = 20.0,
    deadline_seconds: float | None = None,
    device: Device = "cpu",
    ranks: int = RANKS,
) -> LocalLauncher:
    """Start DDP under the name `NAME`; `files` lie beside `small.py`, which holds `SMALL`."""
    store = open_store(f"file:{folder / 'store'}")
    plan = Plan(
        run=NAME, project=NAME, name=f"ddp-{ranks}", run_prefix="runs/bench/0/bench", program=program, strategy="ddp",
        mesh=Mesh(dp_replicate=ranks), steps=steps, global_batch=16, micro_batch=8, checkpoint=checkpoint,
        recovery=recovery or Recovery(), device=device, deterministic=device == "cpu",
    )  # fmt: skip
    layer = pack(LayerFile(name, text.encode()) for name, text in {**files, "small.py": SMALL}.items())
    podset = PodSet(
        name=NAME, run=NAME, project=NAME, commit="0", procs_per_node=ranks, code=put_blob(store, layer),
        plan=put_blob(store, plan.to_json()), store=store.url, env=environ or {}, secrets=("checkpoint-key",),
        grace_seconds=grace_seconds, deadline_seconds=deadline_seconds,
    )  # fmt: skip
    launcher = LocalLauncher(folder / "gangs", store=store, secrets=lambda _: b"k" * 32)
    launcher.submit(podset)
    return launcher

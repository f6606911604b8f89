"""What the plan stage knows of a model and of this machine, found out in the same way."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from one_rank import LARGE, LEARNING_RATE, TASK
from shapes import Model, Shapes


def profile_of(model: Model):
    """Followed operation by operation, computing nothing."""
    from gangline.measure import model_facts
    from gangline.spec.codec import from_plain
    from gangline.spec.profile import ModelProfile, ParameterShape, Trace

    if str(LARGE) not in sys.path:
        sys.path.insert(0, str(LARGE))
    found = model_facts.model(TASK, dict(model))
    if found.get("untraced"):
        raise SystemExit(f"this model was not followed: {found['untraced']}")
    return ModelProfile(
        parameters=found["parameters"], tensors=found["tensors"], blocks=found["blocks"],
        shapes=tuple(from_plain(ParameterShape, each) for each in found["shapes"]),
        largest_block_parameters=found["largest_block_parameters"],
        traces=tuple(from_plain(Trace, each) for each in found["traces"]), origin="traced",
    )  # fmt: skip


def inventory(shapes: Shapes):
    """One device of this machine, or its cores."""
    from gangline.measure.machine import machine
    from gangline.spec.devices import Devices, Inventory

    found = machine()
    devices = tuple(Devices(**each | {"count": 1}) for each in found["devices"][:1]) if shapes.device == "cuda" else ()
    return Inventory(cores=found["cores"], memory_bytes=found["memory_bytes"], devices=devices, origin="this machine")


def rates(shapes: Shapes, line: Any, profile: Any):
    """Rates of the devices here for the products of `profile`, as the plan stage measures them."""
    from gangline.line.stages.device_rates import device_rates
    from gangline.spec.config.site import Site

    with tempfile.TemporaryDirectory() as folder:
        seen = device_rates(
            line,
            Site(),
            inventory(shapes),
            profile,
            cache=Path(folder),
            visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
            notify=lambda _: None,
        )
    if seen.rates is None:
        raise SystemExit(seen.problem)
    return seen.rates


def line_of(shapes: Shapes, model: Model, *, steps: int):
    from gangline.spec.config.line import Line, MemoryTable, MeshTable, ProjectTable, TrainTable

    train = TrainTable(
        steps=steps, global_batch=shapes.micro_batch, strategy="none", ranks=1, precision=shapes.precision,
        mesh=MeshTable(micro_batch=shapes.micro_batch), memory=MemoryTable(activation_checkpointing="none"),
    )  # fmt: skip
    optimizer = {"elementwise": {"rule": "adamw", "lr": LEARNING_RATE}}
    return Line(project=ProjectTable(name="p", task=TASK), model=dict(model), optimizer=optimizer, train=train)

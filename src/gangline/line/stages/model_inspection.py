"""Inspection of this machine and of the line's model, in a child process, so that this one does not import torch.

The result is cached by everything it depends on: environment, code, model options, cores, device files.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path

from gangline.errors import BuildError, ConfigError, IntegrityError, error_for, storage_errors
from gangline.launch.sandbox.module_runner import ModuleJob, ModuleRunner
from gangline.line.request.trust import KeptHome
from gangline.spec.codec import digest, from_plain
from gangline.spec.config.line import Line
from gangline.spec.config.secrets import plain_of
from gangline.spec.data_source import DatasetUse
from gangline.spec.devices import Inventory
from gangline.spec.profile import ModelProfile, Trace
from gangline.spec.python_environment import paths_from_top
from gangline.spec.record import Trust
from gangline.storage.folder.durable_files import replace_file
from gangline.storage.objects.code_layer import MAX_BYTES
from gangline.storage.objects.protocol import ObjectStore
from gangline.units import format_bytes

TIMEOUT_SECONDS = 300.0
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
MOST_NAMES = 8
"""Data files that get stand-ins."""


@dataclass(frozen=True, slots=True)
class ModelInspection:
    """Devices of this machine and profile of the model."""

    inventory: Inventory
    profile: ModelProfile | None
    """None for a program, whose model is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSource:
    """Inputs for building the line's model in a child process."""

    line: Line
    code: bytes
    """Code layer."""
    environment: str
    """Digest of the environment."""
    lacks: tuple[str, ...] = ()
    """Paths of files that DVC or Git LFS track and that `code` is without; ranks alone have them."""
    folder: str = ""
    """Folder of the line in its code layer."""
    trust: Trust = "own"
    """Trust in the commit of the code."""
    data: tuple[str, ...] = ()
    """Names of the files that ranks read, or the columns of their data sets; empty if not known."""
    python: str | None = None
    """Interpreter of the run's environment on this machine; None: that of this process."""
    visible_devices: str | None = None
    """CUDA_VISIBLE_DEVICES of this process."""
    home: KeptHome | None = None
    """Home of the code on this machine, in which earlier runs may have left something."""

    @property
    def path(self) -> tuple[str, ...]:
        """`project.path` relative to the top of the layer, where the child process starts."""
        return paths_from_top(self.folder, self.line.project.path)


def columns_of(store: ObjectStore, sets: Sequence[DatasetUse]) -> tuple[str, ...]:
    """Names that stand for the rows of data sets; tasks are traced with rows of the first."""
    if not sets:
        return ()
    from gangline.data.versions import read_dataset  # most lines name no data set
    from gangline.spec.dataset import columns_text

    return (columns_text(read_dataset(store, sets[0])),)


def inspect_model(model: ModelSource, *, home: Path, runner: ModuleRunner) -> ModelInspection:
    """Inventory of this machine and profile of the line's model, cached below `home`; `runner` runs the model's code.

    Raises:
        ConfigError: The task cannot be imported, or not built with the options of the line.
        IntegrityError: Code of this commit may not run here.
    """
    cached = inspection_cache_file(model, home)
    if cached.exists():
        return _parse(cached.read_bytes())
    data = _inspect(model, runner)
    inspection = _parse(data)
    _write(cached, data)
    return inspection


def inspection_cache_file(model: ModelSource, home: Path) -> Path:
    """Cache file of an inspection, named by the digest of everything it depends on."""
    task, function = model.line.project.task, model.line.train.schedule.function
    key: dict[str, object] = {
        "answer": sorted(field.name for kind in (ModelProfile, Trace) for field in fields(kind)),
        "cores": len(os.sched_getaffinity(0)),
        "devices": sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*")),
        "visible": model.visible_devices,
    }
    if task or function:  # otherwise no code of the commit runs
        key |= {
            "environment": model.environment,
            "code": sha256(model.code).hexdigest(),
            "task": task,
            "path": model.line.project.path,
            "model": model.line.model,
            "schedule": {"function": function, "steps": model.line.train.steps} if function else None,
            "env": plain_of(model.line.train.env),
            "home": str(model.home.path) if model.home else None,
            "data": sorted(model.data)[:MOST_NAMES] if task else [],
        }
    return home / "cache" / f"inspect-{digest(key)[:32]}.json"


def _inspect(model: ModelSource, runner: ModuleRunner) -> bytes:
    task, function = model.line.project.task, model.line.train.schedule.function
    job = ModuleJob(module="gangline.measure.inspect", seconds=TIMEOUT_SECONDS, trust="own")
    if task or function:
        names = json.dumps(sorted(model.data)[:MOST_NAMES])
        of_task = ("--task", task, "--options", json.dumps(model.line.model), "--data", names) if task else ()
        of_schedule = ("--schedule", function, "--steps", str(model.line.train.steps)) if function else ()
        arguments, env = (*of_task, *of_schedule), plain_of(model.line.train.env)
        job = replace(
            job, arguments=arguments, code=model.code, path=model.path, trust=model.trust, env=env, python=model.python
        )  # fmt: skip
    result = runner.run(job)
    if result.exit_code is None:
        raise BuildError(f"inspecting the model took over {TIMEOUT_SECONDS:.0f} s; does build_model hang?")
    if result.exit_code:
        of = f"{task or function}: " if task or function else ""
        named = next((path for path in model.lacks if path in result.output_tail), None)
        if named is not None:
            raise ConfigError(
                f"{of}{result.output_tail}; DVC or Git LFS tracks {named}: gangline plan does not fetch it, and a run"
                f" gives it to ranks alone if all such files have over {format_bytes(MAX_BYTES)}; open it in build_data"
            )
        raise error_for(result.exit_code)(f"{of}{result.output_tail}")
    return result.stdout


def _parse(data: bytes) -> ModelInspection:
    """Parse the output of the child process, in which model code may have written anything."""
    try:
        answer = json.loads(data)
        inventory = from_plain(
            Inventory,
            {
                "cores": answer["cores"], "memory_bytes": answer.get("memory_bytes"), "devices": answer["devices"],
                "origin": "this machine",
            },
        )  # fmt: skip
        if answer.get("parameters") is None:
            return ModelInspection(inventory, None)
        profile = {field.name: answer[field.name] for field in fields(ModelProfile) if field.name in answer}
        origin = "traced" if profile.get("traces") else "inspected"
        return ModelInspection(inventory, from_plain(ModelProfile, profile | {"origin": origin}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, IntegrityError) as error:
        raise ConfigError(f"wanted the inspection of a model, found {data[:80]!r}: {error}") from error


def _write(path: Path, data: bytes) -> None:
    with storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data, durable=False)

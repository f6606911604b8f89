"""Inspection of the machine and of the line's model in a child process, because torch stays out of this one.

The answer is cached by everything it depends on: environment, code, model options, cores, device files.
"""

import json
import os
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path

from gangline.errors import BuildError, ConfigError, IntegrityError, error_for, storage_errors
from gangline.launch.sandbox.module_runner import ModuleJob, ModuleRunner
from gangline.spec.codec import digest, from_plain
from gangline.spec.config.line import Line
from gangline.spec.config.secrets import plain_of
from gangline.spec.devices import Inventory
from gangline.spec.profile import ModelProfile, Trace
from gangline.spec.python_environment import paths_from_top
from gangline.spec.record import Trust

TIMEOUT_SECONDS = 300.0
MOST_NAMES = 8
"""Files of the data that stand-ins are made for."""


@dataclass(frozen=True, slots=True)
class ModelInspection:
    """What there is to train on, and what is to be trained."""

    inventory: Inventory
    profile: ModelProfile | None
    """None for a program of the user: its model is its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSource:
    """What the child process needs to build the line's model."""

    line: Line
    code: bytes
    """Code layer."""
    environment: str
    """Digest."""
    folder: str = ""
    """Of the line in its code layer."""
    trust: Trust = "own"
    """Whose commit the code is of."""
    data: tuple[str, ...] = ()
    """Names of the files that ranks will read; empty: not known."""
    python: str | None = None
    """Of an environment of its own on this machine."""

    @property
    def path(self) -> tuple[str, ...]:
        """From the top of the layer, where the child process starts."""
        return paths_from_top(self.folder, self.line.project.path)


def inspect_model(model: ModelSource, *, home: Path, runner: ModuleRunner) -> ModelInspection:
    """Inventory of this machine and profile of the line's model, kept below `home`; `runner` runs the model's code.

    Raises:
        ConfigError: The task cannot be imported or built as the line asks; its message is passed on.
        IntegrityError: Code of such a commit does not run here.
    """
    kept = inspection_cache_file(model, home)
    if kept.exists():
        return _read(kept.read_bytes())
    answer = _inspect(model, runner)
    seen = _read(answer)
    _write(kept, answer)
    return seen


def inspection_cache_file(model: ModelSource, home: Path) -> Path:
    """Where the answer is kept, by everything that it depends on."""
    task, function = model.line.project.task, model.line.train.schedule.function
    question: dict[str, object] = {
        "answer": sorted(field.name for kind in (ModelProfile, Trace) for field in fields(kind)),
        "cores": len(os.sched_getaffinity(0)),
        "devices": sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*")),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    if task or function:  # else nothing of the commit runs
        question |= {
            "environment": model.environment,
            "code": sha256(model.code).hexdigest(),
            "task": task,
            "path": model.line.project.path,
            "model": model.line.model,
            "schedule": {"function": function, "steps": model.line.train.steps} if function else None,
            "env": plain_of(model.line.train.env),
            "data": sorted(model.data)[:MOST_NAMES] if task else [],
        }
    return home / "cache" / f"inspect-{digest(question)[:32]}.json"


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
    done = runner.run(job)
    if done.exit_code is None:
        raise BuildError(f"inspecting the model took over {TIMEOUT_SECONDS:.0f} s; is build_model stuck?")
    if done.exit_code:
        raise error_for(done.exit_code)(f"{task or function}: {done.output_tail}")
    return done.stdout


def _read(data: bytes) -> ModelInspection:
    """The model itself may have written anything."""
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
        told = {field.name: answer[field.name] for field in fields(ModelProfile) if field.name in answer}
        origin = "traced" if told.get("traces") else "inspected"
        return ModelInspection(inventory, from_plain(ModelProfile, told | {"origin": origin}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, IntegrityError) as error:
        raise ConfigError(f"wanted what the inspection of a model tells, found {data[:80]!r}: {error}") from error


def _write(path: Path, data: bytes) -> None:
    staged = path.with_suffix(f".{os.getpid()}")
    with storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(data)
        staged.replace(path)

"""What is there to train on, and how large the model is: asked of a child process, because torch stays out of here.

The answer is kept by everything it depends on: environment, code, model options, cores, device files.
"""

import json
import os
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path

from gangline.errors import BuildError, ConfigError, IntegrityError, error_for
from gangline.launch.sandbox.runner import Job, Runner
from gangline.line.places import writing
from gangline.spec.codec import digest, from_plain
from gangline.spec.inventory import Inventory
from gangline.spec.line import Line
from gangline.spec.profile import ModelProfile, Trace
from gangline.spec.record import Trust

TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is to train on, and what is to be trained."""

    inventory: Inventory
    profile: ModelProfile | None
    """None for a program of the user: its model is its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """What the child process needs to build the line's model."""

    line: Line
    code: bytes
    """Code layer."""
    environment: str
    """Digest."""
    trust: Trust = "own"
    """Whose commit the code is of."""


def look(model: Model, *, home: Path, runner: Runner) -> Seen:
    """Inventory of this machine and profile of the line's model, kept below `home`; `runner` runs the model's code.

    Raises:
        ConfigError: The task cannot be imported or built as the line asks; its message is passed on.
        IntegrityError: Code of such a commit does not run here.
    """
    kept = answer_file(model, home)
    if kept.exists():
        return _read(kept.read_bytes())
    answer = _inspect(model, runner)
    seen = _read(answer)
    _write(kept, answer)
    return seen


def answer_file(model: Model, home: Path) -> Path:
    """Where the answer is kept, by everything that it depends on."""
    question = {
        "answer": sorted(field.name for field in fields(Trace)),
        "environment": model.environment,
        "code": sha256(model.code).hexdigest(),
        "task": model.line.project.task,
        "model": model.line.model,
        "cores": len(os.sched_getaffinity(0)),
        "devices": sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*")),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    return home / "cache" / f"inspect-{digest(question)[:32]}.json"


def _inspect(model: Model, runner: Runner) -> bytes:
    task = model.line.project.task
    job = Job(module="gangline.train.estimate.inspect", seconds=TIMEOUT_SECONDS, trust="own")
    if task:  # else nothing of the commit runs
        arguments = ("--task", task, "--options", json.dumps(model.line.model))
        job = replace(job, arguments=arguments, code=model.code, trust=model.trust)
    done = runner.run(job)
    if done.exit_code is None:
        raise BuildError(f"inspecting the model took over {TIMEOUT_SECONDS:.0f} s; is build_model stuck?")
    if done.exit_code:
        raise error_for(done.exit_code)(f"{task}: {done.last_words}")
    return done.stdout


def _read(data: bytes) -> Seen:
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
            return Seen(inventory, None)
        told = {field.name: answer[field.name] for field in fields(ModelProfile) if field.name in answer}
        origin = "traced" if told.get("traces") else "inspected"
        return Seen(inventory, from_plain(ModelProfile, told | {"origin": origin}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, IntegrityError) as error:
        raise ConfigError(f"wanted what the inspection of a model tells, found {data[:80]!r}: {error}") from error


def _write(path: Path, data: bytes) -> None:
    staged = path.with_suffix(f".{os.getpid()}")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(data)
        staged.replace(path)

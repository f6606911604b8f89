"""What is there to train on, and how large the model is: asked of a child process, because torch stays out of here.

The answer is kept by everything it depends on: environment, code, model options, cores, device files.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from gangline.errors import BuildError, ConfigError, error_for
from gangline.launch.local.start import passed_on
from gangline.line.places import writing
from gangline.spec.codec import digest, from_plain
from gangline.spec.inventory import Devices, Inventory
from gangline.spec.line import Line
from gangline.spec.profile import ModelProfile, ParameterShape, Trace
from gangline.storage.layer import unpack

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


def look(model: Model, *, home: Path) -> Seen:
    """Inventory of this machine and profile of the line's model; kept below `home`.

    Raises:
        ConfigError: The task cannot be imported or built as the line asks; its message is passed on.
    """
    kept = answer_file(model, home)
    if not kept.exists():
        _write(kept, _inspect(model))
    return _read(json.loads(kept.read_bytes()))


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


def _inspect(model: Model) -> bytes:
    task = model.line.project.task
    command = [sys.executable, "-m", "gangline.train.estimate.inspect"]
    if task:
        command += ["--task", task, "--options", json.dumps(model.line.model)]
    with tempfile.TemporaryDirectory(prefix="gangline-inspect-") as folder:
        code = Path(folder) / "code"
        unpack(model.code, code)
        done = _run(command, code, folder)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
        raise error_for(done.returncode)(f"{task}: {said[-1]}")
    return done.stdout


def _run(command: list[str], code: Path, scratch: str) -> subprocess.CompletedProcess[bytes]:
    """What it leaves in its temporary folder when it is killed goes with `scratch`."""
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": scratch}
    try:
        return subprocess.run(
            command, cwd=code, env=passed_on() | own, capture_output=True, check=False, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"inspecting the model took over {TIMEOUT_SECONDS:.0f} s; is build_model stuck?") from error


def _read(answer: dict[str, Any]) -> Seen:
    devices = tuple(Devices(**each) for each in answer["devices"])
    inventory = Inventory(
        cores=answer["cores"], memory_bytes=answer.get("memory_bytes"), devices=devices, origin="this machine"
    )
    if answer.get("parameters") is None:
        return Seen(inventory, None)
    profile = ModelProfile(
        parameters=answer["parameters"],
        tensors=answer.get("tensors", 0),
        shapes=tuple(from_plain(ParameterShape, each) for each in answer.get("shapes", ())),
        parameter_bytes=answer.get("parameter_bytes"),
        largest_block_parameters=answer.get("largest_block_parameters"),
        blocks=answer.get("blocks"),
        tensor_cuts=answer.get("tensor_cuts"),
        experts=answer.get("experts"),
        sequence=answer.get("sequence"),
        obstacles=answer.get("obstacles", {}),
        traces=tuple(from_plain(Trace, each) for each in answer.get("traces", ())),
        untraced=answer.get("untraced", ""),
        origin="traced" if answer.get("traces") else "inspected",
    )
    return Seen(inventory, profile)


def _write(path: Path, data: bytes) -> None:
    try:
        json.loads(data)
    except ValueError as error:
        raise ConfigError(f"wanted JSON from the inspection of the model, found {data[:80]!r}") from error
    staged = path.with_suffix(f".{os.getpid()}")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(data)
        staged.replace(path)

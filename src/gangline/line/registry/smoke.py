"""Smoke test of an exported model: a fresh process, the commit's code, a little of its data, one answer."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gangline.errors import BuildError, GanglineError, TrainingError, error_for
from gangline.spec.plan import DataFile, Plan
from gangline.spec.record import Record
from gangline.storage.blobs import PREFIX, get_blob
from gangline.storage.layer import fetch_layer
from gangline.storage.protocol import ObjectStore
from gangline.train.materialise import data_paths, materialise
from gangline.units import format_number

TIMEOUT_SECONDS = 300.0
MAX_DATA_BYTES = 64 * 2**20
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH")
"""What the process may see of this one's environment: no secret stands in any of these."""


def run_smoke(store: ObjectStore, record: Record, folder: Path, workdir: Path, python: Sequence[str]) -> str:
    """One sentence on what the model in `folder` answered.

    Raises:
        TrainingError, IntegrityError: It did not; the message is the process's own.
    """
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True)
    arguments = _arguments(store, record, workdir)
    done = _run([*python, "-m", "gangline.train.smoke", str(folder.resolve()), *arguments], workdir)
    if done.returncode:
        raise _error(done)
    answer = json.loads(done.stdout.splitlines()[-1])
    if "loss" in answer:
        return f"answers in a fresh process, loss {format_number(answer['loss'])}"
    return f"opens in a fresh process, {answer['parameters']} finite numbers"


def _arguments(store: ObjectStore, record: Record, workdir: Path) -> list[str]:
    """Lay out code and data of a task; a program of its own has neither."""
    if record.plan is None:
        raise BuildError(f"run {record.run.id} has no plan, so nothing says how its model is built")
    plan = Plan.from_json(get_blob(store, record.plan.key))
    if plan.program.task is None:
        return []
    code = workdir / "code"
    key = record.inputs.code
    fetch_layer(store, key if key.startswith(PREFIX) else PREFIX + key, code)
    little = replace(plan, data=replace(plan.data, files=_some(plan.data.files)))
    materialise(little, workdir / "data", store)
    options = {
        "text": [str(Path(path).resolve()) for path in data_paths(little, workdir / "data")], "shards": [],
        "holdout": plan.data.holdout, "seed": plan.seed, "model": plan.model,
    }  # fmt: skip
    written = workdir / "options.json"
    written.write_text(json.dumps(options), encoding="utf-8")
    return ["--code", str(code.resolve()), "--options", str(written.resolve())]


def _some(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """Data files by size up to `MAX_DATA_BYTES`, at least one: one batch needs no more."""
    chosen: list[DataFile] = []
    total = 0
    for file in sorted(files, key=lambda each: (each.size_bytes, each.path)):
        total += file.size_bytes
        if chosen and total > MAX_DATA_BYTES:
            break
        chosen.append(file)
    return tuple(chosen)


def _run(command: list[str], workdir: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name in _KEPT if (value := os.environ.get(name)) is not None}
    env = kept | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            command, cwd=workdir, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            check=False, timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise TrainingError(f"the published model gave no answer within {TIMEOUT_SECONDS:.0f} s") from error


def _error(done: subprocess.CompletedProcess[str]) -> GanglineError:
    said = [line for line in done.stderr.splitlines() if line.strip()]
    last = said[-1][:300] if said else f"exit {done.returncode}"
    return error_for(done.returncode)(f"the published model does not answer in a fresh process: {last}")

"""Smoke test of an exported model: a fresh process loads it and, for a task, computes a loss on some of the data."""

import json
import shutil
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.data.versions import read_dataset
from gangline.errors import BuildError, TrainingError, error_for
from gangline.launch.sandbox.module_runner import ModuleJob, ModuleRunner
from gangline.spec.codec import to_plain
from gangline.spec.config.secrets import plain_of
from gangline.spec.data_source import DataFile, DatasetUse
from gangline.spec.dataset import DatasetShard
from gangline.spec.plan import Plan
from gangline.spec.python_environment import paths_from_top
from gangline.spec.record import Record
from gangline.storage.objects.blobs import PREFIX, get_blob
from gangline.storage.objects.placed_files import with_placed_files
from gangline.storage.objects.protocol import ObjectStore
from gangline.train.model.golden import parse_golden
from gangline.train.runtime.dataset_files import data_paths, fetch_data_files
from gangline.units import format_number

TIMEOUT_SECONDS = 300.0
MAX_DATA_BYTES = 64 * 2**20
MAX_SHARD_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class SmokeAnswer:
    """What the model answered."""

    text: str
    """One sentence."""
    golden: bytes | None = None
    """The batch and its outputs, as `golden.safetensors` has them; None: no task, or too large."""


def run_smoke_test(
    store: ObjectStore,
    record: Record,
    folder: Path,
    workdir: Path,
    runner: ModuleRunner,
    *,
    env: Mapping[str, str],
    python: Callable[[], str | None],
) -> SmokeAnswer:
    """Let a fresh process open the model in `folder`; its answer.

    Args:
        store: Holds plan, code and data of the run.
        record: Of the run.
        folder: The exported model.
        workdir: Replaced by a fresh folder.
        runner: Runs the process.
        env: Variables of the line.
        python: Interpreter of the commit's environment, asked for a task only; None: the driver's.

    Raises:
        TrainingError, IntegrityError: It failed; the message has the process's own.
    """
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True)
    done = runner.run(replace(_job(store, record, folder, workdir, python), env=plain_of(env)))
    if done.exit_code is None:
        raise TrainingError(f"the smoke test of the model did not end within {TIMEOUT_SECONDS:.0f} s")
    if done.exit_code:
        last = done.output_tail[:300]
        raise error_for(done.exit_code)(f"the model failed its smoke test in a fresh process: {last}")
    answer, golden = _read(done.stdout)
    if "loss" in answer:
        return SmokeAnswer(f"answers in a fresh process, loss {format_number(answer['loss'])}", golden)
    return SmokeAnswer(f"opens in a fresh process, {answer['parameters']} finite numbers", golden)


def _job(
    store: ObjectStore, record: Record, folder: Path, workdir: Path, python: Callable[[], str | None]
) -> ModuleJob:
    """The process; with code and data for a task, with neither for another program."""
    if record.plan is None:
        raise BuildError(f"run {record.run.id} has no plan, so it is not known how its model is built")
    plan = Plan.from_json(get_blob(store, record.plan.key))
    job = ModuleJob(
        module="gangline.train.roles.smoke_test", arguments=("../model",), files={"model": folder},
        seconds=TIMEOUT_SECONDS,
        trust=record.commit.trust,
    )  # fmt: skip
    if plan.program.task is None:
        return job
    key = record.inputs.code
    layer = get_blob(store, key if key.startswith(PREFIX) else PREFIX + key)
    if (code := with_placed_files(layer, store, plan.data.tracked)) is None:
        return job
    small_plan = replace(plan, data=replace(plan.data, files=_smallest_files(plan.data.files)))
    data = workdir / "data"
    fetch_data_files(small_plan, data, store)
    shards = [shard for use in plan.data.sets for shard in _smallest_shard(store, use, data)]
    if len(shards) < len(plan.data.sets):  # of a source that only ranks may read, or too large for one batch
        return job
    options = {
        "text": [f"../data/{Path(path).relative_to(data)}" for path in data_paths(small_plan, data)],
        "shards": [], "holdout": plan.data.holdout, "seed": plan.seed, "model": plan.model,
        "dataset": [to_plain(shard) for shard in shards],
        "data_of_members": plan.federation is not None and plan.federation.is_data_of_members,
    }  # fmt: skip
    files: dict[str, bytes | Path] = {"model": folder, "data": data, "options.json": json.dumps(options).encode()}
    arguments = ("../model", "--code", ".", "--options", "../options.json")
    path = code_path(plan)
    return replace(job, arguments=arguments, code=code, path=path, files=files, python=python())


def _smallest_shard(store: ObjectStore, use: DatasetUse, folder: Path) -> list[DatasetShard]:
    """The smallest shard of a data set, held-out if there are any, put into `folder`; none of a source or too large."""
    shards = [shard for shard in read_dataset(store, use).shards if shard.source is None]
    chosen = min(shards, key=lambda shard: (shard.split != "holdout", shard.size_bytes, shard.path), default=None)
    if chosen is None or chosen.size_bytes > MAX_SHARD_BYTES:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    (folder / chosen.sha256).write_bytes(get_blob(store, chosen.key))
    return [chosen]


def code_path(plan: Plan) -> tuple[str, ...]:
    """Folders of the code layer that a process at its top has on its path."""
    return paths_from_top(plan.program.folder, plan.program.path)


def _read(output: bytes) -> tuple[dict[str, float], bytes | None]:
    """Numbers and golden sample in the last line of output; the model's code may have printed lines before it."""
    try:
        answer = json.loads(output.splitlines()[-1])
        found = {name: answer[name] for name in {"parameters", "loss"} & {"parameters", *answer}}
        golden = b64decode(answer["golden"], validate=True) if "golden" in answer else None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise TrainingError(f"wanted JSON from the smoke test of the model, found {output[-80:]!r}") from error
    if not all(isinstance(each, int | float) for each in found.values()):
        raise TrainingError(f"wanted numbers from the smoke test of the model, found {str(found)[:80]}")
    if golden is not None:
        parse_golden(golden)
    return found, golden


def _smallest_files(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """The smallest data files, up to `MAX_DATA_BYTES` together and at least one: enough for one batch."""
    chosen: list[DataFile] = []
    total = 0
    for file in sorted(files, key=lambda data_file: (data_file.size_bytes, data_file.path)):
        total += file.size_bytes
        if chosen and total > MAX_DATA_BYTES:
            break
        chosen.append(file)
    return tuple(chosen)

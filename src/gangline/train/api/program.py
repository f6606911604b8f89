"""Program: rank, steps, data, saves and metrics of a gang for programs of any framework, without torch.

    with Program(steps=200) as program:
        folder = program.resume()                      # files of the newest save, or None
        while program.has_more:
            loss = ...                                 # the program's own step
            program.step(loss=loss)
            if program.save_due:
                program.save({"state.npz": data})      # rank 0's is kept
        program.report(eval_loss=..., weights="state.npz")

A script whose loop should stay where it is joins by `program = Program().start()` instead, until the interpreter ends.

Started by a keeper it follows the plan. A program that runs on its own is a gang of one rank: it saves nothing and uses
the given arguments. `stop_asked` is true on a rank that was asked to stop: the program passes it on with its own
collectives, so that all end after the same step, and calls `leave`.
"""

import atexit
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsFloat

from gangline.errors import SIGTERM_CODE, TrainingError, UsageError
from gangline.keeper.ipc.environment import RankEnvironment, current_rank
from gangline.spec.gang.status import GangResult, JobResult, WeightsFile
from gangline.spec.plan import Plan
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store
from gangline.train import heartbeat
from gangline.train.account.event_log import EventLog, LineFile, serve_metrics
from gangline.train.account.reports import Evaluations, WeightsPaths, as_number, as_numbers, weights_files
from gangline.train.account.results import METRICS, losses_of, write_result
from gangline.train.api.program_saves import Content, ProgramSaves, flatten, paths_of
from gangline.train.runtime.dataset_files import data_paths, fetch_data_files

SAVE_SECONDS = 600.0
"""Silence announced for a save or a restore."""
ENDING_SECONDS = 600.0
"""Silence announced after the last step, in which a program or another rank writes its results."""


class Program:
    """One process of a gang, for programs of any framework; no call is collective."""

    def __init__(self, *, steps: int = 100, global_batch: int = 16, seed: int = 1) -> None:
        """The arguments apply when the program runs by itself; in a gang the values of the line do."""
        self.steps, self.global_batch, self.seed = steps, global_batch, seed
        self.rank, self.world_size = 0, 1
        self.step_number = 0
        """Last finished step."""
        self.stop_asked = False
        """This rank received SIGTERM."""
        self.data_files: list[str] = []
        self.options: dict[str, Any] = {}
        """The table [model] of the line."""
        self._plan: Plan | None = None
        self._save_every = 0
        self._home = Path()
        self._saves: ProgramSaves | None = None
        self._metrics: LineFile | None = None
        self._reported: dict[str, float] = {}
        self._evaluations = Evaluations()
        self._saved: dict[str, WeightsFile] = {}
        """Files of the last save, by name."""
        self._events = EventLog(None, rank=0, generation=0)
        self._began = time.monotonic()
        self._left = False

    def start(self) -> "Program":
        """Join until the interpreter ends, without a `with` block; an uncaught error is reported as from the block."""
        before = sys.excepthook

        def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self.__exit__(kind, error, trace)
            atexit.unregister(self._finish)
            before(kind, error, trace)

        self.__enter__()
        sys.excepthook = report
        atexit.register(self._finish)
        return self

    def __enter__(self) -> "Program":
        environment = current_rank()
        if environment is not None:
            self._join(environment)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        del kind, trace
        if error is None:
            self._write_result()
        if self._left:
            self._emit_left()
        elif error is None or (isinstance(error, SystemExit) and not error.code):
            self._events.emit("done", exit=0, reason="finished")
        else:
            self._events.emit("done", exit=TrainingError.exit_code, reason=_first_line(error))
        self._close()

    def _finish(self) -> None:
        """Called when the interpreter ends; unless the program left on request, only the keeper sees the exit code."""
        if self._left:
            self._emit_left()
        else:
            self._write_result()
        self._close()

    def _emit_left(self) -> None:
        self._events.emit("done", exit=SIGTERM_CODE, reason="stopped as asked")

    def _close(self) -> None:
        self._events.close()
        if self._metrics is not None:
            self._metrics.close()

    @property
    def has_more(self) -> bool:
        """There are steps left to train."""
        return self.step_number < self.steps

    @property
    def in_gang(self) -> bool:
        """The process was started by `gangline run`; otherwise it runs on its own, as one rank."""
        return self._plan is not None

    @property
    def shared_folder(self) -> Path:
        """Folder shared by the ranks of this node, for files that several write before a save; in a gang only."""
        return self._home / "shared"

    @property
    def save_every(self) -> int:
        """Steps between saves; another number in a generation after a restart, where `every = "auto"`."""
        return self._save_every or self.steps

    @property
    def save_due(self) -> bool:
        """A save is due after the step just finished; the same on all ranks."""
        return self.step_number % self.save_every == 0 or not self.has_more

    def resume(self) -> Path | None:
        """Folder with the files of the newest save that verifies, and `step_number` set to its step; None: no save.

        Raises:
            IntegrityError: There are saves, and none of them verifies.
        """
        if self._saves is None:
            return None
        heartbeat.expect(SAVE_SECONDS)
        heartbeat.beat(phase="resume")
        folder = self._home / "restored" / str(self.rank)
        step = self._saves.restore(folder, on_refused=self._refused)
        if step is None:
            return None
        self.step_number, self._saved = step, self._saves.files
        heartbeat.beat(step)
        self._events.emit("resumed", step=step)
        return folder

    def step(self, *, loss: SupportsFloat, **numbers: SupportsFloat) -> None:
        """Report a finished step to watchdog, record and loss curve; `loss` and `numbers` are equal on all ranks.

        Args:
            loss: Number, or tensor or array with one element, as each of `numbers`.

        Raises:
            UsageError: One is not a number, or has the name of a field that a step has already.
        """
        value = as_number("program.step: loss", loss)
        more = as_numbers("program.step", numbers, of_a_step=True)
        self.step_number += 1
        now = time.monotonic()
        seconds, self._began = now - self._began, now
        heartbeat.beat(self.step_number, phase="step")
        if not self.has_more:
            heartbeat.expect(ENDING_SECONDS)
        self._events.emit(
            "step", step=self.step_number, loss=value, samples=self.global_batch, seconds=seconds,
            phases={"other": seconds}, **more,
        )  # fmt: skip
        if self._metrics is not None:
            line = {"seed": self.seed, "job": None, "step": self.step_number, "loss": value, "step_seconds": seconds}
            self._metrics.add(line | more)

    def save(self, files: Mapping[str, Content]) -> None:
        """Save `files` as the state after the step just finished, on rank 0; other ranks return at once.

        Args:
            files: By plain name: bytes, or the path of a file or a folder, which is saved whole below that name.

        Raises:
            StorageError: The store failed; older saves are kept.
            UsageError: `files` cannot be saved; also raised outside a gang.
        """
        if self.rank != 0:
            return
        if self._saves is None:
            flat = flatten(files)
            paths = paths_of(flat)
            self._saved = {paths.get(name, name): WeightsFile() for name in flat}
            return
        began = time.monotonic()
        if self._metrics is not None:
            self._metrics.flush()  # a restart begins after this step, so its line must be on disk
        heartbeat.expect(SAVE_SECONDS)
        heartbeat.beat(phase="checkpoint")
        self._events.emit("busy", step=self.step_number, phase="checkpoint")
        key, size = self._saves.save(self.step_number, files)
        self._saved = self._saves.files
        self._began = time.monotonic()
        seconds = self._began - began
        self._events.emit(
            "saved", step=self.step_number, key=key, size_bytes=size, seconds=seconds, blocking_seconds=seconds
        )

    def report(self, *, weights: WeightsPaths | None = None, **metrics: SupportsFloat) -> None:
        """Report metrics of the finished training, equal on all ranks; those of rank 0 are recorded.

        Args:
            weights: Files that hold the weights on which they were measured, written before: `"out/best.pt"`, a folder,
                several, or names in the last save. A version of these files is judged by these metrics.
            metrics: Numbers, or tensors or arrays with one element.

        Raises:
            UsageError: One is not a number, or there is no such file.
        """
        numbers = as_numbers("program.report", metrics)
        self._reported |= numbers
        if self.rank == 0:
            self._evaluations.add(self.step_number, numbers, self._weights(weights))
        self._events.emit("evaluated", step=self.step_number, seed=self.seed, metrics=dict(self._reported))

    def _weights(self, paths: WeightsPaths | None) -> dict[str, WeightsFile]:
        if paths is None:
            return {}
        heartbeat.expect(SAVE_SECONDS)
        return weights_files(paths, saved=self._saved)

    def leave(self) -> None:
        """End this rank after a stop request, once it has saved; all ranks call it after the same step.

        Raises:
            UsageError: There was no stop request.
        """
        if not self.stop_asked and self.world_size == 1:
            raise UsageError("leave() ends a program that was asked to stop, but stop_asked is False")
        self._events.emit("stopping", step=self.step_number, reason="SIGTERM: saved and left")
        self._left = True
        raise SystemExit(SIGTERM_CODE)

    def expect(self, seconds: float) -> None:
        """Announce up to `seconds` without a step, for a compilation or an evaluation: the watchdog waits as long."""
        heartbeat.expect(seconds)

    def listen(self) -> None:
        """Install the SIGTERM handler that sets `stop_asked`; call it again after a library replaced it."""
        if self.in_gang:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def _join(self, environment: RankEnvironment) -> None:
        env, plan = environment, Plan.from_json(environment.plan.read_bytes())
        self._plan, self._home = plan, env.home
        self._save_every = env.save_every or plan.checkpoint.every
        self.rank, self.world_size, self.options = env.rank, env.world_size, dict(plan.model)
        self.steps, self.global_batch, self.seed = plan.last_step, plan.global_batch, plan.seed
        self._events = EventLog(env.out / "ranks" / f"{env.rank}.jsonl", rank=env.rank, generation=env.generation)
        self._events.emit("started", pid=os.getpid(), node=env.node_rank, gang=env.gang)
        self._metrics = LineFile(env.out / METRICS) if env.rank == 0 else None
        store = open_store(env.store, credentials=env.store_credentials_file, socket_folder=env.store_socket)
        self._fetch(plan, store, env)
        self._saves = ProgramSaves(
            store, f"{plan.own_prefix}/program", run=plan.run, plan_digest=plan.digest, generation=env.generation,
            key=env.key_file.read_bytes(), keep=plan.checkpoint.keep,
        )  # fmt: skip
        self.listen()
        serve_metrics(env, plan, self._events)
        heartbeat.beat(phase="joined")
        self._events.emit("joined", seconds=time.monotonic() - self._began)
        self._began = time.monotonic()

    def _fetch(self, plan: Plan, store: ObjectStore, env: RankEnvironment) -> None:
        """Fetch the files of the line's data, and all shards of its data sets as `datasets/NAME/SPLIT/SHARD`."""
        heartbeat.expect(SAVE_SECONDS)
        heartbeat.beat(phase="data")
        folder = self._home / "data"
        fetch_data_files(plan, folder, store)
        self.data_files = data_paths(plan, folder)
        if plan.data.sets:
            from gangline.train.api.program_shards import put_datasets  # few lines name data sets

            self.data_files += put_datasets(plan, env, store, self._events, folder)

    def _write_result(self) -> None:
        losses = losses_of(self._metrics, seed=self.seed, job=None)
        job = JobResult(
            seed=self.seed, step=self.step_number, metrics=self._reported, losses=losses,
            evaluations=self._evaluations.all(),
        )  # fmt: skip
        role = self._plan.role if self._plan is not None else "train"
        write_result(self._metrics, GangResult(role=role, final_step=self.step_number, jobs=(job,)))

    def _refused(self, file: str, reason: str) -> None:
        self._events.emit("checkpoint_refused", file=file, reason=reason)

    def _on_sigterm(self, number: int, frame: object) -> None:
        del number, frame
        self.stop_asked = True


def _first_line(error: BaseException | None) -> str:
    """One line for the record; the traceback is in the log."""
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0][:500]}"

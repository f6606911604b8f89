"""For programs of any framework: what a gang knows and wants to know, without torch.

    with Program(steps=200) as program:
        folder = program.resume()                      # files of the newest save, or None
        while program.has_more:
            loss = ...                                 # the program's own step
            program.step(loss=loss)
            if program.save_due:
                program.save({"state.npz": data})      # rank 0's is kept
        program.report(eval_loss=...)

Started by a keeper it obeys the plan; at a desk it is a gang of one, saves nothing and takes the arguments given.
A rank that is asked to stop sees `stop_asked`: the program carries that to the others with its own collectives, so that
all leave after the same step, and calls `leave`.
"""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gangline.errors import SIGTERM_CODE, UsageError
from gangline.spec.gang import GangResult, JobResult
from gangline.spec.plan import Plan
from gangline.storage.open import open_store
from gangline.storage.protocol import ObjectStore
from gangline.train import heartbeat
from gangline.train.account.events import EventLog
from gangline.train.account.lines import LineFile
from gangline.train.environment import RankEnvironment, in_gang
from gangline.train.materialise import data_paths, materialise
from gangline.train.program_saves import ProgramSaves
from gangline.train.results import METRICS, losses_of, write_result
from gangline.train.serving import serve_metrics

SAVE_SECONDS = 600.0
"""Silence announced for a save or a restore."""


class Program:
    """One process's part in a gang; nothing here is collective, the program's own framework does that."""

    def __init__(self, *, steps: int = 100, global_batch: int = 16, seed: int = 1) -> None:
        """The arguments count at a desk; in a gang the plan says."""
        self.steps, self.global_batch, self.seed = steps, global_batch, seed
        self.rank, self.world_size = 0, 1
        self.step_number = 0
        """Last finished step."""
        self.stop_asked = False
        """This rank got SIGTERM."""
        self.data_files: list[str] = []
        self.options: dict[str, Any] = {}
        """The table [model] of the line."""
        self._plan: Plan | None = None
        self._home = Path()
        self._saves: ProgramSaves | None = None
        self._metrics: LineFile | None = None
        self._reported: dict[str, float] = {}
        self._events = EventLog(None, rank=0, generation=0)
        self._began = time.monotonic()

    def __enter__(self) -> "Program":
        if in_gang(os.environ):
            self._join(RankEnvironment.read(os.environ))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        del kind, trace
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else int(error is not None)
        if error is None:
            self._write_result()
        reason = {0: "finished", SIGTERM_CODE: "stopped as asked"}.get(code, _first_line(error))
        self._events.emit("done", exit=code, reason=reason)
        self._events.close()
        if self._metrics is not None:
            self._metrics.close()

    @property
    def has_more(self) -> bool:
        return self.step_number < self.steps

    @property
    def save_due(self) -> bool:
        """After the step just finished; alike on all ranks."""
        every = self._plan.checkpoint.every if self._plan is not None else self.steps
        return self.step_number % every == 0 or not self.has_more

    def resume(self) -> Path | None:
        """Folder with the files of the newest good save, where `step_number` stands from now on; None: begin.

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
        self.step_number = step
        heartbeat.beat(step)
        self._events.emit("resumed", step=step)
        return folder

    def step(self, *, loss: float, **numbers: float) -> None:
        """One more step is done: tell watchdog, record and curve; `loss` and `numbers` are those of the whole gang."""
        self.step_number += 1
        now = time.monotonic()
        seconds, self._began = now - self._began, now
        heartbeat.beat(self.step_number, phase="step")
        self._events.emit(
            "step", step=self.step_number, loss=loss, samples=self.global_batch, seconds=seconds,
            phases={"other": seconds}, **numbers,
        )  # fmt: skip
        if self._metrics is not None:
            line = {"seed": self.seed, "job": None, "step": self.step_number, "loss": loss, "step_seconds": seconds}
            self._metrics.add(line | numbers)

    def save(self, files: Mapping[str, bytes]) -> None:
        """Keep `files` as the state after the step just finished; rank 0's count, others return at once.

        Raises:
            StorageError: The store failed; older saves stand.
        """
        if self._saves is None or self.rank != 0:
            return
        began = time.monotonic()
        heartbeat.expect(SAVE_SECONDS)
        heartbeat.beat(phase="checkpoint")
        self._events.emit("busy", step=self.step_number, phase="checkpoint")
        key = self._saves.save(self.step_number, files)
        size = sum(map(len, files.values()))
        self._began = time.monotonic()
        seconds = self._began - began
        self._events.emit(
            "saved", step=self.step_number, key=key, size_bytes=size, seconds=seconds, blocking_seconds=seconds
        )

    def report(self, **metrics: float) -> None:
        """Put metrics of the finished training into the gang's result; equal on all ranks, rank 0's count."""
        self._reported |= {name: float(value) for name, value in metrics.items()}
        self._events.emit("evaluated", step=self.step_number, seed=self.seed, metrics=dict(self._reported))

    def leave(self) -> None:
        """End as a rank that was asked to stop and has saved; every rank after the same step.

        Raises:
            UsageError: Nobody asked.
        """
        if not self.stop_asked and self.world_size == 1:
            raise UsageError("leave() is for a program that was asked to stop: stop_asked says so")
        self._events.emit("stopping", step=self.step_number, reason="SIGTERM: saved and left")
        raise SystemExit(SIGTERM_CODE)

    def expect(self, seconds: float) -> None:
        """Announce that nothing will be heard of this rank for so long: a compilation, an evaluation."""
        heartbeat.expect(seconds)

    def _join(self, environment: RankEnvironment) -> None:
        env, plan = environment, Plan.from_json(environment.plan.read_bytes())
        self._plan, self._home = plan, env.home
        self.rank, self.world_size, self.options = env.rank, env.world_size, dict(plan.model)
        self.steps, self.global_batch, self.seed = plan.last_step, plan.global_batch, plan.seed
        self._events = EventLog(env.out / "ranks" / f"{env.rank}.jsonl", rank=env.rank, generation=env.generation)
        self._events.emit("started", pid=os.getpid(), node=env.node_rank, gang=env.gang)
        self._metrics = LineFile(env.out / METRICS) if env.rank == 0 else None
        store = open_store(env.store, credentials=env.store_credentials_file)
        self._fetch(plan, store)
        self._saves = ProgramSaves(
            store, f"{plan.run_prefix}/program", run=plan.run, plan_digest=plan.digest, generation=env.generation,
            key=env.key_file.read_bytes(), keep=plan.checkpoint.keep,
        )  # fmt: skip
        signal.signal(signal.SIGTERM, self._on_sigterm)
        serve_metrics(env, plan, self._events)
        heartbeat.beat(phase="joined")
        self._events.emit("joined", seconds=time.monotonic() - self._began)
        self._began = time.monotonic()

    def _fetch(self, plan: Plan, store: ObjectStore) -> None:
        heartbeat.expect(SAVE_SECONDS)
        heartbeat.beat(phase="data")
        materialise(plan, self._home / "data", store)
        self.data_files = data_paths(plan, self._home / "data")

    def _write_result(self) -> None:
        losses = losses_of(self._metrics, seed=self.seed, job=None)
        job = JobResult(seed=self.seed, step=self.step_number, metrics=self._reported, losses=losses)
        write_result(self._metrics, GangResult(role="train", final_step=self.step_number, jobs=(job,)))

    def _refused(self, file: str, reason: str) -> None:
        self._events.emit("checkpoint_refused", file=file, reason=reason)

    def _on_sigterm(self, number: int, frame: object) -> None:
        del number, frame
        self.stop_asked = True


def _first_line(error: BaseException | None) -> str:
    """The traceback stands in the log."""
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0][:500]}"

"""Model code at a member: one process in gangline's sandbox that lives for a run and sees the folder of data alone.

It has no network, no home and no key; the folder of data is read-only. Calls and answers of rounds go through a folder.
"""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from gangline.errors import SIGKILL_CODE, CapacityError, IntegrityError, error_for
from gangline.federated.mailbox import MailboxMembers
from gangline.federated.protocol import RoundAnswers, RoundCall
from gangline.launch.sandbox import Sandbox, find_engine
from gangline.launch.sandbox.engines import WHAT_WORKS
from gangline.launch.sandbox.host_paths import make_own
from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.launch.sandbox.process_runner import ProcessRunner, RunningModule
from gangline.spec.plan import Plan

MODULE = "gangline.train.roles.federated_member"
_ALL_DAYS = 365 * 86_400.0


class LocalGang:
    """The rank of one run at this member, started with its first call."""

    def __init__(self, plan: Plan, code: bytes, data: Path, *, name: str) -> None:
        """Args:
        plan: Of the run.
        code: Its code layer, which was approved.
        data: Folder that it reads.
        name: Of the member.
        """
        self._plan, self._code, self._data = plan, code, data
        self._name = name
        self._stack = ExitStack()
        self._running: RunningModule | None = None

    def ask(self, call: RoundCall, *, trainings: int, is_stopped: Callable[[], bool]) -> RoundAnswers:
        """The answer of this member's rank; before this call it made so many private trainings.

        Raises:
            IntegrityError: There is no bubblewrap here, or the answer is none.
            TrainingError: Model code raised.
            CapacityError: It was killed, or did not answer in time; it starts again with the next call.
        """
        running = self._running or self._start(trainings)
        deadline = time.monotonic() + call.seconds

        def look() -> None:
            code = running.process.poll()
            if code is not None:
                is_killed, said = code in (-signal.SIGKILL, SIGKILL_CODE), running.log_tail()
                self.close()
                if is_killed:
                    raise CapacityError(f"round {call.number}: model code was killed: {said}")
                raise error_for(code)(f"model code ended with exit {code}: {said}")
            if is_stopped() or time.monotonic() > deadline:
                self.close()
                raise CapacityError(f"round {call.number}: no answer within {call.seconds:.0f} s, or it was stopped")

        answers = MailboxMembers(running.work / "rounds", on_wait=look).ask(call)
        if len(answers.contributions) != 1:
            raise IntegrityError(f"wanted one answer of model code, found {len(answers.contributions)}")
        return answers

    def close(self) -> None:
        """End its process."""
        self._running = None
        self._stack.close()

    def _start(self, trainings: int) -> RunningModule:
        engine = find_engine("required", wide=False)
        if not engine.hides:
            raise IntegrityError(
                f"wanted bubblewrap, for code of others runs on data of this member; found {engine.text}; {WHAT_WORKS}"
            )
        sandbox = Sandbox(engine=engine, trust="fork", required=True)
        job = ModuleJob(
            module=MODULE, arguments=("../plan.json", "../data", "../rounds", self._name, str(trainings)),
            code=self._code, path=self._plan.program.path, seconds=_ALL_DAYS, trust="fork",
            files={"plan.json": self._plan.to_json(), "data": self._data},
        )  # fmt: skip
        self._running = self._stack.enter_context(ProcessRunner(lambda _: sandbox).start(job))
        make_own(self._running.work / "rounds", engine.uid)
        return self._running

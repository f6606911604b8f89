"""A loop over an `Accelerator` in a gang.

with GanglineRun() as run:
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    run.resume(accelerator)                          # loads the newest save and sets run.step_number
    for batch in endless(loader, skip=run.step_number):
        loss = ...
        accelerator.backward(loss)
        optimizer.step()
        run.step(accelerator, loss)                  # reports the loss, saves when due, ends after a stop request
        if not run.has_more:
            break
    run.report(eval_loss=...)                        # metrics of gates
"""

import shutil
from typing import SupportsFloat

from accelerate import Accelerator
from accelerate.utils import set_seed

from gangline.integrations.joined import Joined, any_rank, mean_over_ranks, restored, wait_for_all
from gangline.train.account.reports import WeightsPaths, as_number

STATE = "state"
"""Name of the folder in a save."""


class GanglineRun(Joined):
    """Enter it before the `Accelerator` is made; every rank makes the same calls in the same order."""

    def __enter__(self) -> "GanglineRun":
        super().__enter__()
        set_seed(self.seed)
        return self

    @property
    def step_number(self) -> int:
        """Last finished step."""
        return self.program.step_number

    @property
    def has_more(self) -> bool:
        """There are steps left to train."""
        return self.program.has_more

    def resume(self, accelerator: Accelerator) -> int:
        """Load the newest save that verifies into the prepared objects; returns its step, 0: there is none."""
        folder = restored(self.program, STATE)
        if folder is not None:
            accelerator.load_state(str(folder))
        return self.step_number

    def step(self, accelerator: Accelerator, loss: SupportsFloat, **numbers: SupportsFloat) -> None:
        """Report the mean loss over ranks of a finished step; save when due; end after a stop request."""
        self.program.step(loss=mean_over_ranks(as_number("run.step: loss", loss)), **numbers)
        if not self.in_gang:
            return
        self._leaving = any_rank(self.program.stop_asked)
        if self._leaving or self.program.save_due:
            self._save(accelerator)
        if self._leaving:
            self.program.leave()

    def report(self, *, weights: WeightsPaths | None = None, **metrics: SupportsFloat) -> None:
        """Report metrics of the finished training, equal on all ranks, and the files of weights they are of."""
        self.program.report(weights=weights, **metrics)

    def _save(self, accelerator: Accelerator) -> None:
        folder = self.program.shared_folder / STATE
        accelerator.save_state(str(folder))
        wait_for_all()
        self.program.save({STATE: folder})
        wait_for_all()
        shutil.rmtree(folder, ignore_errors=True)

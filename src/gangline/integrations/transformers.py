"""A `Trainer` of transformers in a gang.

    with GanglineCallback() as gang:
        args = TrainingArguments(output_dir="out", max_steps=gang.steps, seed=gang.seed, save_strategy="no")
        trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[gang])
        trainer.train(resume_from_checkpoint=gang.resume())
        trainer.evaluate(held_out)                       # metrics of gates: eval_loss and your own

The loss of each step goes to the loss curve and the watchdog. A checkpoint folder is saved every
`train.checkpoint.every` steps and after a stop request; the next generation resumes from it.
"""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from gangline.integrations.joined import Joined, any_rank, restored, wait_for_all
from gangline.train import heartbeat

CHECKPOINT = "checkpoint"
"""Name of the folder in a save."""


_ITS_OWN = ("epoch", "_runtime", "_per_second")


class GanglineCallback(Joined, TrainerCallback):
    """Enter it, pass it to the `Trainer`, resume from `resume()`; the same on every rank."""

    def resume(self) -> str | None:
        """The checkpoint to resume from, for `trainer.train(resume_from_checkpoint=...)`; None: there is none."""
        folder = restored(self.program, CHECKPOINT)
        return None if folder is None else str(folder)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Request the log of the step's loss, and a save when due or after a stop request."""
        del args
        self.program.step_number = state.global_step - 1
        if not self.in_gang:
            return
        control.should_log = True
        self._leaving = any_rank(self.program.stop_asked)
        if self._leaving or state.global_step % self.program.save_every == 0 or state.global_step >= state.max_steps:
            control.should_save = True
        if self._leaving:
            control.should_training_stop = True

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *,
        logs: dict[str, Any] | None = None, **_: Any,
    ) -> None:  # fmt: skip
        """Report the mean loss over ranks of the finished step."""
        del args, control
        if logs and "loss" in logs and self.program.step_number < state.global_step:
            names = {"learning_rate": "learning_rate", "grad_norm": "gradient_norm"}
            more = {own: float(logs[name]) for name, own in names.items() if logs.get(name) is not None}
            self.program.step_number = state.global_step - 1
            self.program.step(loss=float(logs["loss"]), **more)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save the folder that the trainer wrote, once all ranks wrote their parts."""
        del control
        if self.in_gang:
            wait_for_all()
            self.program.save({CHECKPOINT: Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"})

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Send a heartbeat: an evaluation counts as progress."""
        del args, state, control
        heartbeat.beat(phase="evaluate")

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *,
        metrics: dict[str, Any] | None = None, **_: Any,
    ) -> None:  # fmt: skip
        """Metrics for gates, without the trainer's own clock; the last evaluation counts."""
        del args, state, control
        self._report({name: each for name, each in (metrics or {}).items() if not name.endswith(_ITS_OWN)})

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """End after a stop request; the next start resumes."""
        del args, state, control
        if self._leaving:
            self.program.leave()

"""A `Trainer` of transformers in a gang.

    with GanglineCallback() as gang:
        args = TrainingArguments(output_dir="out", max_steps=gang.steps, seed=gang.seed, save_strategy="no")
        trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[gang])
        trainer.train(resume_from_checkpoint=gang.resume())
        trainer.evaluate(held_out)                       # metrics of gates: eval_loss and your own

The loss of each step goes to the loss curve and the watchdog. A checkpoint folder is saved every
`train.checkpoint.every` steps and after a stop request; the next generation resumes from it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from gangline.integrations.joined import Joined, any_rank, numbers_of, restored, wait_for_all
from gangline.train import heartbeat

CHECKPOINT = "checkpoint"
"""Name of the folder in a save."""
_WEIGHTS = ("*model*.safetensors", "pytorch_model*.bin")
"""Files of weights in a checkpoint of a trainer; `adapter_model.safetensors` is one."""
_ITS_OWN = ("epoch", "_runtime", "_per_second")


class GanglineCallback(Joined, TrainerCallback):
    """Enter it, pass it to the `Trainer`, resume from `resume()`; the same on every rank.

    Metrics of an evaluation are of the checkpoint that is written at the same step with the same weights, after the
    training of that whose weights the trainer holds.
    """

    _trains = _evaluates = False
    _found: tuple[int, dict[str, float]] = (-1, {})
    """Step and metrics of the last evaluations of the training."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Evaluations up to `on_train_end` are of weights that still change."""
        del args, state, control
        self._trains = True

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

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *,
        model: "torch.nn.Module | None" = None, **_: Any,
    ) -> None:  # fmt: skip
        """Save the folder that the trainer wrote, once all ranks wrote their parts."""
        del control
        if self.in_gang:
            wait_for_all()
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            self.program.save({CHECKPOINT: folder})
            step, found = self._found
            if step == state.global_step and model is not None and self._holds_evaluated(model):
                self._report(found, _weights_in(folder))

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *,
        model: "torch.nn.Module | None" = None, **_: Any,
    ) -> None:  # fmt: skip
        """Send a heartbeat: an evaluation counts as progress."""
        del args, state, control
        heartbeat.beat(phase="evaluate")
        if not self._evaluates and model is not None:
            self._note_weights(model)
        self._evaluates = True

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *,
        metrics: dict[str, Any] | None = None, model: "torch.nn.Module | None" = None, **_: Any,
    ) -> None:  # fmt: skip
        """Metrics for gates, without the trainer's own clock; the last evaluation counts."""
        del control
        found = numbers_of({name: each for name, each in (metrics or {}).items() if not name.endswith(_ITS_OWN)})
        self._evaluates = False
        step, earlier = self._found
        self._found = state.global_step, (earlier if step == state.global_step else {}) | found
        self._report(found, () if self._trains else self._weights_of(model, _in_memory(args, state)))

    def on_predict(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, metrics: Any, **_: Any
    ) -> None:
        """A prediction is no evaluation."""
        del args, state, control, metrics
        self._evaluates = False

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """End after a stop request; the next start resumes."""
        del args, state, control
        self._trains = False
        if self._leaving:
            self.program.leave()

    def _weights_of(self, model: "torch.nn.Module | None", folder: Path) -> list[Path]:
        """Files of weights in `folder`, if the model has the same tensors; on rank 0 of a gang alone."""
        if model is None or not self._holds_evaluated(model):
            return []
        files, state = _weights_in(folder), model.state_dict()
        return files if all(_holds(file, state) for file in files) else []


def _in_memory(args: TrainingArguments, state: TrainerState) -> Path:
    """Checkpoint whose weights a trainer holds after its training: the best, if it has loaded it."""
    if args.load_best_model_at_end and state.best_model_checkpoint is not None:
        return Path(state.best_model_checkpoint)
    return Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"


def _weights_in(folder: Path) -> list[Path]:
    return sorted(file for pattern in _WEIGHTS for file in folder.glob(pattern))


def _holds(file: Path, state: Mapping[str, torch.Tensor]) -> bool:
    """Whether a file of safetensors has tensors of `state` alone, with the same values."""
    if file.suffix != ".safetensors":
        return False
    with safe_open(file, framework="pt") as tensors:
        names = list(tensors.keys())
        return all(name in state and torch.equal(tensors.get_tensor(name), state[name].cpu()) for name in names)

"""A `Trainer` of lightning in a gang.

    with GanglineCallback() as gang:
        trainer = Trainer(max_steps=gang.steps, callbacks=[gang], **gang.trainer_options())
        trainer.fit(model, data, ckpt_path=gang.resume())
        trainer.validate(model, held_out)                # metrics of gates: those that the model logs

The loss of each step goes to the loss curve and the watchdog. A checkpoint is saved every `train.checkpoint.every`
steps and after a stop request; the next generation resumes from it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn

from gangline.errors import ConfigError
from gangline.integrations.joined import Joined, any_rank, mean_over_ranks, numbers_of, restored
from gangline.keeper.ipc.environment import RankEnvironment, current_rank
from gangline.train import heartbeat
from gangline.train.account.reports import as_number

CHECKPOINT = "lightning.ckpt"
"""Name of the file in a save."""


class GanglineEnvironment(LightningEnvironment):
    """The processes of a gang, which its keeper started: lightning starts none."""

    def __init__(self, environment: RankEnvironment) -> None:
        super().__init__()
        self._environment = environment
        self._global_rank, self._world_size = environment.rank, environment.world_size

    @property
    def creates_processes_externally(self) -> bool:
        """Always: the keeper starts them."""
        return True

    @staticmethod
    def detect() -> bool:
        """A keeper started this process."""
        return current_rank() is not None

    def node_rank(self) -> int:
        """Place of this node among those that take part."""
        return self._environment.node_rank

    def local_rank(self) -> int:
        """Place of this rank on its node."""
        return self._environment.local_rank

    def set_world_size(self, size: int) -> None:
        """Raises `ConfigError` if the trainer was built for another number of ranks."""
        if size != self._world_size:
            works = "Trainer(**gang.trainer_options())"
            raise ConfigError(f"wanted devices x num_nodes = {self._world_size} ranks, found {size}; {works}")

    def set_global_rank(self, rank: int) -> None:
        """No effect: the keeper has set the rank."""
        del rank

    def teardown(self) -> None:
        """The gang's variables stay as the keeper set them."""


class GanglineCallback(Joined, Callback):
    """Enter it, pass it to the `Trainer`, resume from `resume()`; the same on every rank.

    Metrics of a validation are of the checkpoints that are written before the next step, those of `validate` and `test`
    with a `ckpt_path` of that checkpoint.
    """

    def __init__(self, *, steps: int = 100, global_batch: int = 16, seed: int = 1) -> None:
        """The arguments apply when the program runs by itself; in a gang the values of the line do."""
        super().__init__(steps=steps, global_batch=global_batch, seed=seed)
        self._validated: dict[str, float] = {}
        """Metrics of the validation since the last step."""
        self._logged: dict[str, object] = {}
        """What the model had logged before the evaluation."""
        self._written: dict[Path, int] = {}
        """Times of the checkpoints that were examined."""

    def trainer_options(self) -> dict[str, Any]:
        """`devices`, `num_nodes`, `strategy` and `plugins` of the gang, empty outside. Calls `seed_everything`."""
        seed_everything(self.seed, workers=True, verbose=False)
        environment = current_rank() if self.in_gang else None
        if environment is None:
            return {}
        if environment.world_size == 1:  # also under project.distributed = false
            return {"devices": 1}
        return {
            "devices": environment.local_world_size,
            "num_nodes": environment.world_size // environment.local_world_size,
            "strategy": "ddp",
            "plugins": [GanglineEnvironment(environment)],
        }

    def resume(self) -> str | None:
        """The checkpoint to resume from, for `trainer.fit(ckpt_path=...)`; None: there is none."""
        file = restored(self.program, CHECKPOINT)
        return None if file is None else str(file)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace lightning's SIGTERM handler, which ends one rank at once: here all leave after the same step."""
        del trainer, pl_module
        self.program.listen()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report the mean loss over ranks of a finished step; save when due or after a stop request."""
        del pl_module, batch, batch_idx
        if trainer.global_step <= self.program.step_number:  # one batch of several that a step gathers
            return
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        self.program.step_number = trainer.global_step - 1
        self.program.step(loss=mean_over_ranks(as_number("the loss of training_step", loss)))
        if not self.in_gang:
            return
        self._leaving = any_rank(self.program.stop_asked)
        if self._leaving or self.program.save_due:
            self._save(trainer)
        if self._leaving:
            trainer.should_stop = True

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Examine the checkpoints that were written since the last step."""
        del batch, batch_idx
        self._examine_checkpoints(trainer, pl_module)
        self._validated = {}

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember what was logged before: the rest is measured on the weights of now."""
        del pl_module
        self._logged = dict(trainer.callback_metrics)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember what was logged before."""
        self.on_validation_start(trainer, pl_module)

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Remember the weights of the validation."""
        del trainer, batch
        if batch_idx == dataloader_idx == 0:
            self._note_weights(pl_module)

    def on_validation_batch_end(self, *arguments: Any, **more: Any) -> None:
        """Send a heartbeat: a validation counts as progress."""
        del arguments, more
        heartbeat.beat(phase="evaluate")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Metrics for gates: what the model logged; the last validation counts."""
        del pl_module
        if trainer.sanity_checking:
            return
        logged = dict(trainer.callback_metrics)
        self._report(numbers_of(logged))
        found = numbers_of({name: tensor for name, tensor in logged.items() if self._logged.get(name) is not tensor})
        if trainer.state.fn == TrainerFn.FITTING:
            self._validated = found
        elif trainer.ckpt_path:
            self._report(found, [Path(trainer.ckpt_path)])

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Do what the end of a validation does."""
        self.on_validation_end(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End after a stop request; the next start resumes."""
        del trainer, pl_module
        if self._leaving:
            self.program.leave()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Examine the last checkpoints."""
        self._examine_checkpoints(trainer, pl_module)
        self._validated = {}

    def _examine_checkpoints(self, trainer: Trainer, model: LightningModule) -> None:
        """Report the last validation as that of the checkpoints which were written after it, of the same weights."""
        if not (self.in_gang and self.program.rank == 0):
            return
        paths = [path for path in _checkpoints(trainer) if path.exists()]
        times = {path: path.stat().st_mtime_ns for path in paths}
        new = [path for path in paths if self._written.get(path) != times[path]]
        self._written |= times
        if self._validated and new and self._holds_evaluated(model):
            for path in new:
                self._report(self._validated, [path])

    def _save(self, trainer: Trainer) -> None:
        file = self.program.shared_folder / CHECKPOINT
        trainer.save_checkpoint(file)  # collective, and it waits for all
        self.program.save({CHECKPOINT: file})
        trainer.strategy.barrier()


def _checkpoints(trainer: Trainer) -> Iterator[Path]:
    """Files that the trainer's own callbacks have written and keep."""
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, ModelCheckpoint):
            named = {*callback.best_k_models, callback.best_model_path, callback.last_model_path}
            yield from (Path(name) for name in sorted(filter(None, named)))

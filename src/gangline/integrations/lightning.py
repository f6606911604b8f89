"""A `Trainer` of lightning in a gang.

    with GanglineCallback() as gang:
        trainer = Trainer(max_steps=gang.steps, callbacks=[gang], **gang.trainer_options())
        trainer.fit(model, data, ckpt_path=gang.resume())
        trainer.validate(model, held_out)                # what gates judge: what the model logs

Each step's loss goes to curve and watchdog; a checkpoint is kept when `train.checkpoint.every` says so and before a
rank that was asked to stop leaves; the next generation goes on from it.
"""

import os
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything

from gangline.errors import ConfigError
from gangline.integrations.joined import Joined, heard_by_all, mean_over_ranks, restored
from gangline.train import heartbeat

CHECKPOINT = "lightning.ckpt"
"""Name of the file in a save."""


class GanglineEnvironment(LightningEnvironment):
    """The processes of a gang, which its keeper started: lightning starts none."""

    def __init__(self) -> None:
        super().__init__()
        self._global_rank, self._world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @staticmethod
    def detect() -> bool:
        return "GANGLINE_GANG" in os.environ

    def node_rank(self) -> int:
        return int(os.environ["NODE_RANK"])

    def local_rank(self) -> int:
        return int(os.environ["LOCAL_RANK"])

    def set_world_size(self, size: int) -> None:
        if size != self._world_size:
            works = "Trainer(**gang.trainer_options())"
            raise ConfigError(f"wanted devices x num_nodes = {self._world_size} ranks, found {size}; {works}")

    def set_global_rank(self, rank: int) -> None:
        del rank  # the keeper gave it

    def teardown(self) -> None:
        """The gang's variables stay as the keeper set them."""


class GanglineCallback(Joined, Callback):
    """Enter it, pass it to the `Trainer`, resume from `resume()`; the same on every rank."""

    def trainer_options(self) -> dict[str, Any]:
        """`devices`, `num_nodes`, `strategy` and `plugins` of the gang, empty outside. Calls `seed_everything`."""
        seed_everything(self.seed, workers=True, verbose=False)
        if not self.in_gang:
            return {}
        if self.program.world_size == 1:  # also under project.distributed = false
            return {"devices": 1}
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        return {
            "devices": local,
            "num_nodes": self.program.world_size // local,
            "strategy": "ddp",
            "plugins": [GanglineEnvironment()],
        }

    def resume(self) -> str | None:
        """The checkpoint to go on from, for `trainer.fit(ckpt_path=...)`; None: begin."""
        file = restored(self.program, CHECKPOINT)
        return None if file is None else str(file)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace lightning's SIGTERM handler, which ends one rank at once: here all leave after the same step."""
        del trainer, pl_module
        self.program.listen()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report the mean loss over ranks of a finished step; save where due or after a stop request."""
        del pl_module, batch, batch_idx
        if trainer.global_step <= self.program.step_number:  # one batch of several that a step gathers
            return
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        self.program.step_number = trainer.global_step - 1
        self.program.step(loss=mean_over_ranks(float(torch.as_tensor(loss).detach())))
        if not self.in_gang:
            return
        self._leaving = heard_by_all(self.program.stop_asked)
        if self._leaving or self.program.save_due:
            self._save(trainer)
        if self._leaving:
            trainer.should_stop = True

    def on_validation_batch_end(self, *arguments: Any, **more: Any) -> None:
        """A validation is no silence."""
        del arguments, more
        heartbeat.beat(phase="evaluate")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Metrics for gates: what the model logged; the last validation counts."""
        del pl_module
        if not trainer.sanity_checking:
            self._report({name: float(value) for name, value in trainer.callback_metrics.items()})

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """As after a validation."""
        self.on_validation_end(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave where a rank was asked to stop: the next start goes on."""
        del trainer, pl_module
        if self._leaving:
            self.program.leave()

    def _save(self, trainer: Trainer) -> None:
        file = self.program.shared_folder / CHECKPOINT
        trainer.save_checkpoint(file)  # collective, and it waits for all
        self.program.save({CHECKPOINT: file})
        trainer.strategy.barrier()

"""State that a training retains in memory while its process groups are rebuilt: all that a checkpoint would hold."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gangline.checkpoint.state import initialise_optimizer, live_state, restore_numbers
from gangline.train.loop.checkpointing import TrainingProgress
from gangline.train.loop.engine import TrainingEngine
from gangline.train.loop.random_state import generator_state
from gangline.train.parallel.local_sgd import local

NO_STEP = -1


@dataclass(slots=True)
class RetainedState:
    """Of one rank, as its last finished step left it."""

    numbers: dict[str, Any] = field(default_factory=dict)
    """Plain JSON data, equal on all ranks that finished the same step."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """They alias the training's own: whole, or this rank's shards."""
    generators: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Random generators of this rank, by the step after which they stood so."""

    @property
    def step(self) -> int:
        """Last finished one; `NO_STEP`: it knows of none."""
        return int(self.numbers["progress"]["step"]) if self.numbers else NO_STEP

    @staticmethod
    def of(engine: TrainingEngine) -> "RetainedState":
        """Of a training that was cut off, at whatever point; local."""
        engine.update.buffers.take_back()
        state, progress = live_state(engine.wrapped.bare, engine.optimizer), engine.noted()
        numbers = {
            "progress": progress.numbers(),
            "optimizer": state.numbers,
            "tensors": sorted(state.tensors),
            "checkpoint": engine.saves.last_key,
        }
        before_step, before = engine.drawn or (-1, {})
        now = progress.step + (before_step == progress.step)  # of a step that was cut off, all is drawn
        own = {name: local(tensor.detach()) for name, tensor in state.tensors.items()}  # of no mesh: it holds links
        return RetainedState(numbers, own, {now: generator_state()} | {before_step: before})

    def open(self, engine: TrainingEngine) -> dict[str, Tensor]:
        """Give the freshly built `engine` the numbers; its tensors of the same names, to be filled; local."""
        model, optimizer = engine.wrapped.bare, engine.optimizer
        initialise_optimizer(model, optimizer, self.numbers["tensors"])
        restore_numbers(model, optimizer, self.numbers["optimizer"], file="a living rank's memory")
        engine.take(TrainingProgress.of(self.numbers["progress"]))
        engine.saves.last_key = self.numbers["checkpoint"]
        tensors = live_state(model, optimizer).tensors
        return {name: tensors[name] for name in self.numbers["tensors"]}

    def fill(self, tensors: dict[str, Tensor]) -> None:
        """Copy what is kept; local."""
        with torch.no_grad():
            for name, tensor in tensors.items():
                local(tensor).copy_(self.tensors[name])

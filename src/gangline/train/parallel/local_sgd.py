"""Outer steps: parts of a run train apart, and exchange weights every some steps.

Those of replicas are here, local SGD and DiLoCo; those of workers with a parameter server in `train.parameters.worker`.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from gangline.checkpoint.format.index import OPTIMIZER
from gangline.checkpoint.state import live_state
from gangline.errors import ConfigError
from gangline.optim.executors.rank_updates import local_part
from gangline.spec.compression import Compression
from gangline.spec.strategies import traits_of
from gangline.train.parallel.compress.bucket import Bucket, Compressor, Piece
from gangline.train.parallel.compress.collectives import GradientCollectives
from gangline.train.parallel.compress.compressors import Uncompressed
from gangline.train.parallel.compress.factory import make_compressor
from gangline.train.runtime.context import RankContext

BUCKET_BYTES = 25 * 2**20
_INNER, _MOMENTUM = "inner/", "outer_momentum/"


class Position(Protocol):
    """Where a training is."""

    step: int
    cursor: int


class OuterStep(Protocol):
    """What the engine calls; all ranks of a gang make the same calls."""

    @abstractmethod
    def agree(self, norm: float, *, loss: float, weight: float, device: torch.device) -> float:
        """Norm of the gradients of a step, equal on all ranks; called with its loss and weight. Collective."""

    def begin(self, progress: Position) -> bool:
        """Called once, after a resume and before the first step; as `advance`."""
        return self.advance(progress)

    @abstractmethod
    def step(self, *, due: bool) -> None:
        """Exchange weights after a step; not `due`: only a save or a stop asks for it. Collective."""

    def advance(self, progress: Position) -> bool:  # noqa: ARG002  replicas take the samples that come next
        """Move `progress` to the samples that come next; False: this gang was asked to stop. Collective."""
        return True

    def close(self) -> None:
        """Called at the end of a training."""
        return

    def tensors(self) -> Mapping[str, Tensor]:
        """State that checkpoints hold, equal on all ranks."""
        return {}

    def own_tensors(self) -> Mapping[str, Tensor]:
        """State that checkpoints hold, of this rank alone."""
        return {}

    def restore(self, own: Mapping[str, Tensor]) -> None:  # noqa: ARG002  that of a worker is in the store
        """Called after a resume with this rank's own tensors."""
        return


class OuterRule(Protocol):
    """Rule that combines replicas."""

    @abstractmethod
    def combine(self) -> None:
        """Make the weights of all replicas equal; collective over the replicas."""

    def resumed(self) -> None:
        """The weights were replaced, equally on all replicas; local."""
        return

    def momentum(self) -> Mapping[str, Tensor]:
        """Outer momentum by parameter, equal on all replicas."""
        return {}


class ReplicaStep(OuterStep):
    """Outer steps of replicas: they combine their weights."""

    def __init__(self, context: RankContext, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """`model` is bare; `optimizer` is the inner one."""
        plan = context.plan
        self._wire = GradientCollectives(context.meshes.group("dp_replicate"), context.waits)
        self._model, self._optimizer = model, optimizer
        self._buffers = {name: tensor for name, tensor in model.named_buffers() if tensor.is_floating_point()}
        self._plain = Average(Uncompressed(self._wire), plan.bucket_bytes)
        self._rule: OuterRule = Mean(model, self._plain)
        traits = traits_of(plan.strategy)
        if traits and traits.has_outer_optimizer:
            compressor = make_compressor(plan.compression, self._wire, seed=plan.seed)
            context.memories["compression"] = compressor
            self._rule = DiLoCo(model, Average(compressor, plan.bucket_bytes), plan.compression)

    def agree(self, norm: float, *, loss: float, weight: float, device: torch.device) -> float:
        """Mean of the replicas' gradient norms: finite if all are, and equal on all ranks. Collective."""
        del loss, weight
        mean = torch.tensor(norm, dtype=torch.float64, device=device)
        self._wire.mean(mean)
        return float(mean)

    @torch.no_grad()
    def step(self, *, due: bool) -> None:
        """Combine the replicas, before a save also if it is not due. Collective."""
        del due
        self._rule.combine()
        self._plain(self._buffers)

    def tensors(self) -> Mapping[str, Tensor]:
        return {_MOMENTUM + name: tensor for name, tensor in self._rule.momentum().items()}

    def own_tensors(self) -> Mapping[str, Tensor]:
        """State of the inner optimizer, which differs between replicas."""
        return {_INNER + name: local_part(tensor) for name, tensor in self._inner().items()}

    @torch.no_grad()
    def restore(self, own: Mapping[str, Tensor]) -> None:
        """Restore the inner state; if another number of ranks saved it, all replicas start from that of one."""
        for name, tensor in self._inner().items():
            if _INNER + name in own:
                local_part(tensor).copy_(own[_INNER + name])
        self._rule.resumed()

    def _inner(self) -> dict[str, Tensor]:
        state = live_state(self._model, self._optimizer).tensors
        return {name.removeprefix(OPTIMIZER): tensor for name, tensor in state.items() if name.startswith(OPTIMIZER)}


def make_outer_step(context: RankContext, model: nn.Module, optimizer: torch.optim.Optimizer) -> ReplicaStep | None:
    """Outer steps if the plan has them; None: replicas are averaged every step.

    Raises:
        ConfigError: There is only one replica.
    """
    plan = context.plan
    if not plan.averages_rarely:
        return None
    if plan.mesh.dp_replicate == 1:
        raise ConfigError(f"train.strategy {plan.strategy!r} wants dp_replicate of 2 or more, found 1; fsdp needs none")
    return ReplicaStep(context, model, optimizer)


class Mean(OuterRule):
    """Local SGD: the mean of the weights."""

    def __init__(self, model: nn.Module, average: "Average") -> None:
        self._weights, self._average = trainable(model), average

    def combine(self) -> None:
        self._average({name: weight.detach() for name, weight in self._weights.items()})


class DiLoCo(OuterRule):
    """DiLoCo: torch's SGD over the last combined weights, with the averaged change since then as gradient."""

    def __init__(self, model: nn.Module, average: "Average", compression: Compression) -> None:
        assert compression.outer_lr is not None, "the rules of a line ask for it"
        self._weights, self._average = trainable(model), average
        self._anchors = {name: weight.detach().clone() for name, weight in self._weights.items()}
        momentum = compression.outer_momentum
        self._sgd = torch.optim.SGD(
            self._anchors.values(), lr=compression.outer_lr, momentum=momentum, nesterov=momentum > 0
        )
        self._momentum = {name: torch.zeros_like(anchor) for name, anchor in self._anchors.items() if momentum}
        for name, buffer in self._momentum.items():  # created now, because a resume fills it
            self._sgd.state[self._anchors[name]]["momentum_buffer"] = buffer

    def combine(self) -> None:
        changes = {name: anchor - self._weights[name].detach() for name, anchor in self._anchors.items()}
        self._average(changes)
        for name, anchor in self._anchors.items():
            anchor.grad = changes[name]
        self._sgd.step()
        self._sgd.zero_grad()
        for name, weight in self._weights.items():
            weight.copy_(self._anchors[name])

    @torch.no_grad()
    def resumed(self) -> None:
        for name, weight in self._weights.items():
            self._anchors[name].copy_(weight)

    def momentum(self) -> Mapping[str, Tensor]:
        return self._momentum


class Average:
    """Averages tensors over the replicas in buckets of a size."""

    def __init__(self, compressor: Compressor, bucket_bytes: int | None) -> None:
        self._compressor, self._bucket_bytes = compressor, bucket_bytes or BUCKET_BYTES

    def __call__(self, tensors: Mapping[str, Tensor]) -> None:
        """Average in place, shards with the same shards of other replicas. Collective."""
        for names in self._buckets(tensors):
            parts = [local_part(tensors[name]) for name in names]
            flat = torch.cat([tensor.reshape(-1) for tensor in parts])
            views = torch.split(flat, [tensor.numel() for tensor in parts])
            pieces = [Piece(n, v.view_as(part)) for n, v, part in zip(names, views, parts, strict=True)]
            self._compressor.average(Bucket(flat, pieces)).wait()
            for piece, part in zip(pieces, parts, strict=True):
                part.copy_(piece.grad)

    def _buckets(self, tensors: Mapping[str, Tensor]) -> Iterator[Sequence[str]]:
        names: list[str] = []
        size = 0
        for name, tensor in tensors.items():
            size += local_part(tensor).nbytes
            names.append(name)
            if size >= self._bucket_bytes:
                yield names
                names, size = [], 0
        if names:
            yield names


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters with gradients, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def is_due(step: int, *, every: int, outer: int = 1) -> bool:
    """Whether `step` is the first with equal replicas since a multiple of `every`; without outer steps: a multiple."""
    return step % outer == 0 and step // every > (step - outer) // every

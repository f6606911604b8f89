"""Context parallelism: each peer has a part of every sequence; only attention spans the whole sequence.

Ulysses attention gives each rank some heads of the whole sequence during attention. Its tensors are (batch, heads,
positions, width). Each head is computed on one rank from all of its keys, by the operator of a single process, so the
bits are those of a single process. Ring attention is in `ring_attention`.
"""

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from gangline.errors import ConfigError
from gangline.train import attention
from gangline.train.parallel.ring_attention import RingAttention
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.torch_compat import all_to_all_single_autograd
from gangline.train.task import Batch, ParallelHints


class UlyssesAttention:
    """Peers of one sequence that exchange heads; an `attention.Exchange`."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self.size = dist.get_world_size(group)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool, scale: float | None, dropout_p: float
    ) -> Tensor:
        _check_heads(query.shape[1], key.shape[1], self.size)
        out = scaled_dot_product_attention(
            self._to_heads(query), self._to_heads(key), self._to_heads(value), dropout_p=dropout_p, is_causal=is_causal,
            scale=scale, enable_gqa=query.shape[1] != key.shape[1],
        )  # fmt: skip
        return self._to_sequence(out)

    def sum(self, part: Tensor) -> Tensor:
        total = part.detach().clone()
        dist.all_reduce(total, group=self._group)
        return total

    def _to_heads(self, part: Tensor) -> Tensor:
        """All positions of a share of the heads."""
        shares = torch.stack(part.chunk(self.size, 1))
        return self._swap(shares).movedim(0, 2).flatten(2, 3)

    def _to_sequence(self, part: Tensor) -> Tensor:
        """All heads of this rank's positions."""
        shares = torch.stack(part.chunk(self.size, 2))
        return self._swap(shares).movedim(0, 1).flatten(1, 2)

    def _swap(self, shares: Tensor) -> Tensor:
        """Send share i of `shares` to rank i; returns the received ones in the order of ranks."""
        return all_to_all_single_autograd(shares, None, None, self._group)


def _check_heads(queries: int, keys: int, size: int) -> None:
    if queries % size or keys % size:
        found = f"{queries} heads" + ("" if keys == queries else f" and {keys} of keys and values")
        raise ConfigError(
            f'train.mesh.context = "ulysses" needs as many heads for each of cp = {size} ranks, found {found}; a '
            'cp that divides them works, and "ring" takes any'
        )


POSITIONS = "positions"
"""Key of a batch, and argument of `forward`: (samples, positions), the position of each token in its whole sequence."""
Order = Literal["paired", "in_turn"]
"""paired: of 2n pieces rank r holds r and 2n - 1 - r; in_turn: of n pieces it holds r."""


def join_sequence(context: RankContext, model: nn.Module, hints: ParallelHints) -> None:
    """Set the attention of this process to that of the plan; every rank calls, whatever its plan.

    Raises:
        ConfigError: Sequences are cut, `model` takes no `positions`, and the hints do not say that it needs none.
    """
    group = context.meshes.group("cp")
    if group is None:
        attention.use(None)
        return
    _require_positions(model, hints)
    attention.use(RingAttention(group, context.waits) if context.plan.context == "ring" else UlyssesAttention(group))


def require_sequences(model: nn.Module, hints: ParallelHints) -> None:
    """Refuse to cut sequences if the hints name none, or the model takes no positions.

    Raises:
        ConfigError: Either is so.
    """
    _require_keys(hints)
    _require_positions(model, hints)


def _require_keys(hints: ParallelHints) -> None:
    if not hints.sequence:
        raise ConfigError(
            "train.mesh.cp cuts sequences, and hints.sequence of the task is empty; name the keys of a batch and the "
            'dimension of each that runs along it: sequence={"tokens": 1, "targets": 1}'
        )


def _require_positions(model: nn.Module, hints: ParallelHints) -> None:
    names = list(inspect.signature(model.forward).parameters)
    if hints.positions and POSITIONS not in names:
        raise ConfigError(
            f"train.mesh.cp cuts sequences: forward of {type(model).__name__} must take {POSITIONS!r}, the position of "
            f"each of its tokens, found {names}; a model that does not use positions says so with "
            "ParallelHints(positions=False)"
        )


@dataclass(frozen=True, slots=True)
class SequenceCut:
    """The part of a batch that this rank works on."""

    dims: Mapping[str, int]
    """Key of the batch to the dimension that is cut."""
    rank: int
    size: int
    order: Order

    @staticmethod
    def of(context: RankContext, hints: ParallelHints) -> "SequenceCut | None":
        """The cut of the plan; None if sequences stay whole.

        Raises:
            ConfigError: They are cut, and the hints do not name their dimensions.
        """
        cp = context.plan.mesh.cp
        if cp == 1:
            return None
        _require_keys(hints)
        order: Order = "paired" if context.plan.context == "ring" else "in_turn"
        return SequenceCut(hints.sequence, context.meshes.place["cp"], cp, order)

    def __call__(self, batch: Batch) -> Batch:
        """This rank's part of every sequence in `batch`, and its `positions`.

        Raises:
            ConfigError: A key is missing, lengths differ, or the length does not divide.
        """
        positions = self.positions(self._length(batch))
        first = batch[next(iter(self.dims))]
        parts = {key: batch[key].index_select(dim, positions.to(batch[key].device)) for key, dim in self.dims.items()}
        return {**batch, **parts, POSITIONS: positions.to(first.device).expand(len(first), -1)}

    def positions(self, length: int) -> Tensor:
        """Positions of this rank's tokens in sequences of `length`, ascending."""
        if self.order == "in_turn":
            return torch.arange(length).chunk(self.size)[self.rank]
        pieces = torch.arange(length).chunk(2 * self.size)
        return torch.cat([pieces[self.rank], pieces[2 * self.size - 1 - self.rank]])

    def _length(self, batch: Batch) -> int:
        if missing := sorted(self.dims.keys() - batch.keys()):
            raise ConfigError(f"hints.sequence names {missing}, a batch has {sorted(batch)}")
        lengths = {key: batch[key].shape[dim] for key, dim in self.dims.items()}
        if len(set(lengths.values())) != 1:
            raise ConfigError(f"hints.sequence: wanted one length, a batch has {lengths}; shift targets in build_data")
        length = int(next(iter(lengths.values())))
        pieces = self.size * (2 if self.order == "paired" else 1)
        if length % pieces:
            way = (
                'the ring cuts each into 2 x cp ("ulysses" into cp)'
                if self.order == "paired"
                else "each is cut into cp"
            )
            raise ConfigError(
                f"train.mesh.cp = {self.size}: {way} pieces, sequences have {length} positions; "
                f"{length - length % pieces or pieces} or {length + pieces - length % pieces} work"
            )
        return length


def cut_block(block: nn.Module) -> None:
    """Run torch's own attention inside `block` over the ranks of a sequence, in place; also during recomputation."""
    forward = block.forward

    @functools.wraps(forward)
    def over_ranks(*args: Any, **kwargs: Any) -> Any:
        with _CatchAttention():
            return forward(*args, **kwargs)

    block.forward = over_ranks


def cut_root(module: nn.Module, hints: ParallelHints) -> None:
    """Do what `cut_block` does; each call must also pass positions, if `module` takes them, and call attention."""
    forward = module.forward
    signature = inspect.signature(forward)
    needs_positions = hints.positions and POSITIONS in signature.parameters
    cut_block(module)
    over_ranks = module.forward

    @functools.wraps(forward)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if needs_positions and signature.bind(*args, **kwargs).arguments.get(POSITIONS) is None:
            raise ConfigError(
                f"{type(module).__name__} was called without positions while sequences are cut (cp > 1): give it "
                f"batch[{POSITIONS!r}], as the runtime's own calls do"
            )
        before = attention.num_calls
        outputs = over_ranks(*args, **kwargs)
        if attention.num_calls == before:
            raise ConfigError(
                f"a forward pass of {type(module).__name__} called no attention that works on cut sequences (cp > 1): "
                "use gangline.train.attention.attention or torch.nn.functional.scaled_dot_product_attention, or cp = 1"
            )
        return outputs

    module.forward = checked


class _CatchAttention(TorchFunctionMode):
    """Runs torch's own attention over the ranks of a sequence."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is scaled_dot_product_attention:
            return attention.attention(*args, **(kwargs or {}))
        if func in _FUSED:
            raise ConfigError(
                f"{func.__name__} computes attention in one fused call, which does not work on cut sequences (cp > 1); "
                "call scaled_dot_product_attention or gangline.train.attention.attention, or train with cp = 1"
            )
        return func(*args, **(kwargs or {}))


_FUSED = frozenset(
    {
        multi_head_attention_forward,
        torch._native_multi_head_attention,  # noqa: SLF001  # what its module calls where no gradient is wanted
        torch._transformer_encoder_layer_fwd,  # noqa: SLF001  # likewise
    }
)
"""Functions that nn.MultiheadAttention and nn.TransformerEncoderLayer call."""

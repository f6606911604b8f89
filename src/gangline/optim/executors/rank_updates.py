"""The rule of a plan on one rank: state, what travels of gradients, updates of whole matrices, changed parameters."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from gangline.errors import ConfigError
from gangline.optim.executors.holders import MatrixPiece
from gangline.optim.executors.team_updates import Team
from gangline.optim.plan.matrix import FragmentSplit
from gangline.optim.plan.optimizer_plan import OptimPlan, PlannedMatrix
from gangline.optim.rules.matrix_rule import MatrixRule, MatrixState, Options

StateOf = Callable[[Tensor], MatrixState]
"""State tensors of a parameter: `momentum`, or `q::factor_left` of its fragment q."""

_ALIGNMENT = 64
"""Bytes; the memory of a new tensor begins at a multiple of it."""
_PHASE = "phase"
"""Owner state of rules that refresh roots or bases; on the CPU, where it is read."""


@dataclass(frozen=True, slots=True)
class MatrixParameter:
    """One parameter that a matrix rule updates."""

    name: str
    parameter: Tensor
    split: FragmentSplit = FragmentSplit()


class StateFiles(Protocol):
    """Keeps state of parameters elsewhere than in memory."""

    def created(self, parameter: Tensor, state: Mapping[Tensor, MatrixState]) -> None:
        """All of its state that this rank keeps exists in `state`, where other tensors take the place of those without
        memory (meta), and may take that of others."""

    def used(self, parameter: Tensor) -> None:
        """A step needs some of its state no more, which may leave memory."""


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """What one step is made with."""

    number: int
    """Number of the step, from 0."""
    active: AbstractSet[int]
    """Places of the parameters to update, equal on all ranks; the others keep their slots and travel as zeros."""
    state_of: StateOf
    options_of: Callable[[Tensor], Options]
    """Group of a parameter."""
    files: StateFiles | None = None
    """None: state stays in memory."""


class RankUpdates:
    """Updates of one plan on this rank. Matrices are named by place in the plan; nothing here communicates."""

    def __init__(
        self, parameters: Sequence[MatrixParameter], plan: OptimPlan, rule: MatrixRule, pieces: Sequence[MatrixPiece],
        *, owner: int, host: int, prepares_all: bool, travels: torch.dtype,
    ) -> None:  # fmt: skip
        """Args:
        parameters: Of the plan, in any order.
        pieces: What this rank holds of each matrix.
        owner: This rank among those with copies.
        host: This rank among those that the matrices are cut over.
        prepares_all: Does it keep the sharded state of parameters that others own?
        travels: Dtype of what is sent.
        """
        self._parameters, self._plan, self._rule, self._pieces = parameters, plan, rule, pieces
        self._owner, self._host, self._travels = owner, host, travels
        self._computes_in = torch.promote_types(travels, torch.float32)
        at = {parameter.name: place for place, parameter in enumerate(parameters)}
        self._parameter_of = [at[planned_matrix.matrix.fqn] for planned_matrix in plan.matrices]
        self._matrices_of: list[list[PlannedMatrix]] = [[] for _ in parameters]
        for place, matrix in zip(self._parameter_of, plan.matrices, strict=True):
            self._matrices_of[place].append(matrix)
        owned = zip(self._parameter_of, plan.matrices, strict=True)
        self._owned_matrices = Counter(
            parameter for parameter, planned_matrix in owned if planned_matrix.owner == owner
        )
        self._keeps = set(range(len(parameters))) if prepares_all else set(self._owned_matrices)
        self.computed = 0
        """Updates that this rank computed since the start: one per matrix and step."""
        self.compute_seconds = 0.0
        """Computing time of these updates; on the CPU alone, as a GPU computes on."""
        self._to_send: Counter[int] = Counter()
        self._prepared: dict[int, Tensor] = {}

    def begin(self, step: UpdateStep) -> None:
        """Begin a step; the calls that follow are part of it."""
        self._step = step
        self._to_send = Counter(self._owned_matrices)
        self._prepared = {}

    def create_state(self, parameter: int, state_of: StateOf, *, without_memory: bool) -> None:
        """Create the state tensors of one parameter that this rank keeps and that do not exist, all zero, or on the
        meta device."""
        stored = self._parameters[parameter].parameter
        state, device = state_of(stored), "meta" if without_memory else local_part(stored).device
        for planned in self._matrices_of[parameter]:
            for name, (shape, dtype, where) in self._rule.spec.state(planned.matrix.shape).items():
                kind = getattr(torch, dtype)
                if where == "sharded" and parameter in self._keeps and name not in state:
                    state[name] = _zeros_like(stored, kind, device)
                elif where == "owner" and self._computes(planned) and _key(planned, name) not in state:
                    state[_key(planned, name)] = torch.zeros(shape, dtype=kind, device=device)
            if self._plan.refresh_every > 1 and self._computes(planned):
                state.setdefault(_key(planned, _PHASE), torch.tensor([[planned.phase]], dtype=torch.int32))

    def part(self, place: int) -> Tensor:
        """What this rank sends of an owned matrix, in one dimension; zeros of one without gradient."""
        parameter, piece = self._parameter_of[place], self._pieces[place]
        stored = local_part(self._parameters[parameter].parameter)
        if parameter not in self._step.active:
            return torch.zeros(piece.elements, dtype=self._travels, device=stored.device)
        if parameter not in self._prepared:
            self._prepared[parameter] = self._prepare(parameter)
        rows = self._prepared[parameter]
        self._to_send[parameter] -= 1
        if not self._to_send[parameter]:  # its last matrix: the memory is free for the next group
            del self._prepared[parameter]
        return (
            rows[piece.stored].to(self._travels).flatten() if piece.elements else rows.new_empty(0, dtype=self._travels)
        )

    def prepare_others(self) -> None:
        """Advance the sharded state of parameters that only other ranks own."""
        for parameter in sorted((self._step.active & self._keeps) - self._owned_matrices.keys()):
            self._prepare(parameter)

    def compute(self, whole: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Updates of whole matrices, in the dtype that travels."""
        found = {place: torch.zeros_like(tensor) for place, tensor in whole.items() if not self._is_active(place)}
        for batch in self._batches([place for place in whole if self._is_active(place)]):
            start = perf_counter()
            updates = self._rule.compute(
                _stacked([whole[place] for place in batch]).to(self._computes_in),
                [self._owner_state(place) for place in batch],
                self._options(batch[0]),
                refresh=[self._is_due(place) for place in batch],
            )
            self.compute_seconds += perf_counter() - start
            self.computed += len(batch)
            for place in batch:
                self._used(self._of(place).parameter)
            found |= zip(batch, updates.to(self._travels), strict=True)
        return found

    def compute_shared(self, place: int, team: Team) -> Tensor | None:
        """Update of a matrix that a team computes, in one dimension, on its leader; None elsewhere; collective."""
        shape = self._plan.matrices[place].matrix.shape
        device = local_part(self._of(place).parameter).device
        whole = self.part(place) if team.is_led else torch.empty(prod(shape), dtype=self._travels, device=device)
        if not self._is_active(place):
            return whole if team.is_led else None  # zeros
        options, start = self._options(place), perf_counter()
        update = team.update(
            whole.view(shape), lambda part, total: self._rule.compute_shared(part.to(self._computes_in), options, total)
        )
        self.compute_seconds += perf_counter() - start
        self.computed += team.is_led
        return None if update is None else update.to(self._travels).flatten()

    def apply(self, place: int, update: Tensor) -> None:
        """Change what this rank holds of one matrix by what it holds of the update, in one dimension."""
        piece = self._pieces[place]
        if not self._is_active(place) or not piece.elements:
            return
        rows = _by_rows(local_part(self._of(place).parameter))
        part, shape = rows[piece.stored], self._plan.matrices[place].matrix.shape
        self._rule.apply(part, update.view(piece.shape).to(self._computes_in), self._options(place), shape)
        if isinstance(piece.stored, Tensor):  # rows that are no range are a copy
            rows[piece.stored] = part

    def _batches(self, places: Sequence[int]) -> list[list[int]]:
        """Matrices of one shape and one group of options, as many together as the plan says."""
        kinds: dict[tuple[tuple[int, int], int], list[int]] = {}
        for place in sorted(places):
            kind = self._plan.matrices[place].matrix.shape, id(self._options(place))
            kinds.setdefault(kind, []).append(place)
        size = self._plan.options.batch
        return [kind[start : start + size] for kind in kinds.values() for start in range(0, len(kind), size)]

    def _prepare(self, parameter: int) -> Tensor:
        matrix_parameter = self._parameters[parameter]
        stored, grad = local_part(matrix_parameter.parameter), matrix_parameter.parameter.grad
        gradient = torch.zeros_like(stored) if grad is None else local_part(grad)
        held = self._step.state_of(matrix_parameter.parameter)
        state = {name: local_part(held[name]) for name in self._names(self._plan.matrices[0], "sharded")}
        rows = _by_rows(self._rule.prepare(gradient, state, self._step.options_of(matrix_parameter.parameter)))
        if self._step.files is not None and any(_share_memory(rows, kept) for kept in state.values()):
            rows = rows.clone()  # what is sent is read once the state has left
        self._used(matrix_parameter.parameter)
        return rows

    def _used(self, parameter: Tensor) -> None:
        if self._step.files is not None:
            self._step.files.used(parameter)

    def _owner_state(self, place: int) -> MatrixState:
        planned = self._plan.matrices[place]
        held = self._step.state_of(self._of(place).parameter)
        return {name: held[_key(planned, name)] for name in self._names(planned, "owner")}

    def _is_due(self, place: int) -> bool:
        """Is this the step of its phase? A checkpoint keeps the phases of the plan that it began with."""
        every = self._plan.refresh_every
        if every == 1:
            return True
        held = self._step.state_of(self._of(place).parameter)
        return self._step.number % every == int(held[_key(self._plan.matrices[place], _PHASE)])

    def _names(self, planned: PlannedMatrix, where: str) -> list[str]:
        return [name for name, (_, _, at) in self._rule.spec.state(planned.matrix.shape).items() if at == where]

    def _is_active(self, place: int) -> bool:
        return self._parameter_of[place] in self._step.active

    def _computes(self, planned: PlannedMatrix) -> bool:
        return (planned.owner, planned.host) == (self._owner, self._host)

    def _options(self, place: int) -> Options:
        return self._step.options_of(self._of(place).parameter)

    def _of(self, place: int) -> MatrixParameter:
        return self._parameters[self._parameter_of[place]]


def local_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a plain tensor or a DTensor; shares its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _share_memory(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _stacked(matrices: Sequence[Tensor]) -> Tensor:
    """`[B, rows, columns]`; one alone shares its memory if it is aligned as that of a new tensor: the bits of products
    may depend on it."""
    if len(matrices) == 1 and matrices[0].data_ptr() % _ALIGNMENT == 0:
        return matrices[0][None]
    return torch.stack(list(matrices))


def _key(planned: PlannedMatrix, name: str) -> str:
    return f"{planned.matrix.fragment}::{name}" if planned.matrix.fragment else name


def _by_rows(tensor: Tensor) -> Tensor:
    """All rows of a stack of matrices, one below the other; shares its memory.

    Raises:
        ConfigError: A stack is not contiguous.
    """
    if tensor.ndim == 2:
        return tensor
    if not tensor.is_contiguous():
        raise ConfigError(f"a stack of matrices is contiguous, found shape {tuple(tensor.shape)}, {tensor.stride()}")
    return tensor.view(-1, tensor.shape[-1])


def _zeros_like(parameter: Tensor, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    stored = local_part(parameter.detach())
    local = torch.zeros_like(stored, dtype=dtype, device=device if stored.numel() else stored.device)
    if not isinstance(parameter, DTensor):
        return local
    return DTensor.from_local(
        local, parameter.device_mesh, parameter.placements, run_check=False, shape=parameter.shape,
        stride=parameter.stride(),
    )  # fmt: skip

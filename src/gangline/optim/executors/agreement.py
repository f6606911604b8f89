"""What all ranks must hold alike before a step, or a collective would hang: the plan, and who has a gradient.

Steps of the elementwise optimizer over some of its parameters, and the comparison of its state with a loaded one.
"""

from collections.abc import Collection, Mapping, Sequence
from math import inf

import torch
from torch import Tensor
from torch.optim import Optimizer

from gangline.errors import ConfigError, NonFiniteError
from gangline.optim.executors.exchange import UpdateExchange
from gangline.optim.executors.matrix_executor import MatrixExecutor
from gangline.optim.executors.rank_updates import local_part
from gangline.optim.plan.optimizer_plan import OptimPlan


class GradientAgreement:
    """Agreement on the gradients of each step, before it changes anything."""

    def __init__(self, executors: Sequence[MatrixExecutor], elementwise: Mapping[Tensor, str], *, raises: bool) -> None:
        """Args:
        executors: Of all matrices.
        elementwise: The other parameters, with their names.
        raises: Does a gradient that is not finite end the step?
        """
        matrices = {parameter.parameter: parameter.name for executor in executors for parameter in executor.parameters}
        ordered = sorted({**matrices, **elementwise}.items(), key=lambda each: each[1])
        self._parameters, self._names = [tensor for tensor, _ in ordered], [name for _, name in ordered]
        self._elementwise = [place for place, parameter in enumerate(self._parameters) if parameter in elementwise]
        place_of = {parameter: place for place, parameter in enumerate(self._parameters)}
        self._places = [[place_of[parameter.parameter] for parameter in executor.parameters] for executor in executors]
        self._executors, self._raises = executors, raises

    @torch.no_grad()
    def agree(self) -> tuple[list[frozenset[int]], list[Tensor]]:
        """One small message per exchange; blocks until all ranks have called.

        Each message has all parameters: holders of one executor learn what others of them know of another one's.

        Returns:
            Of each executor the places of the parameters that have a gradient on any rank, if it is finite; elementwise
            parameters with a gradient that is not.

        Raises:
            NonFiniteError: On all ranks, with the names.
        """
        own = self._own()
        active, wild = [], set()
        for executor, places in zip(self._executors, self._places, strict=True):
            flags = own.to(local_part(executor.parameters[0].parameter).device, copy=True)
            for exchange in executor.exchanges:
                flags = exchange.largest(flags)
            present, not_finite = flags.bool().tolist()
            active.append(frozenset(at for at, place in enumerate(places) if present[place] and not not_finite[place]))
            wild |= {place for place, is_wild in enumerate(not_finite) if is_wild}
        if wild and self._raises:
            names = ", ".join(self._names[place] for place in sorted(wild)[:8])
            raise NonFiniteError(f"gradients of {names} are not finite; nothing was updated")
        return active, [self._parameters[place] for place in self._elementwise if place in wild]

    def _own(self) -> Tensor:
        """Two rows, a column for each parameter: has it a gradient here, and is that not finite?"""
        device = local_part(self._parameters[0]).device
        flags = torch.zeros((2, len(self._parameters)), dtype=torch.int32, device=device)
        grads = {
            place: _values(parameter.grad)
            for place, parameter in enumerate(self._parameters)
            if parameter.grad is not None
        }
        flags[0, list(grads)] = 1
        filled = {place: grad for place, grad in grads.items() if grad.numel()}
        if filled:
            flags[1, list(filled)] = _not_finite(list(filled.values()), device).to(torch.int32)
        return flags


def _not_finite(grads: list[Tensor], device: torch.device) -> Tensor:
    """One flag for each.

    On CPUs torch finds largest values at a tenth of the rate of sums of squares, which leave the range for finite
    values, too: only where they do are values looked at.
    """
    if device.type == "cpu":
        flags = ~_norms(grads, 2, device).isfinite()
        for at in flags.nonzero().flatten().tolist():
            flags[at] = not bool(grads[at].isfinite().all())
        return flags
    return ~_norms(grads, inf, device).isfinite()


def _norms(grads: list[Tensor], order: float, device: torch.device) -> Tensor:
    norms = torch._foreach_norm(grads, order)  # noqa: SLF001  # one kernel, as torch's own clipping
    return torch.stack([norm.float().to(device) for norm in norms])


def step_without(optimizer: Optimizer, parameters: Collection[Tensor]) -> None:
    """A step that leaves `parameters` as they are."""
    grads = {each: each.grad for each in parameters}
    for parameter in parameters:
        parameter.grad = None
    optimizer.step()
    for parameter, grad in grads.items():
        parameter.grad = grad


def _values(grad: Tensor) -> Tensor:
    here = local_part(grad)
    return here.coalesce().values() if here.is_sparse else here


def require_equal_plans(plan: OptimPlan, exchanges: Sequence[UpdateExchange], device: torch.device) -> None:
    """
    Raises:
        ConfigError: On all ranks: theirs differ.
    """
    for exchange in exchanges:
        hashes = set(exchange.texts(plan.plan_hash, device))
        if len(hashes) > 1:
            raise ConfigError(
                f"ranks planned the optimizer differently: {', '.join(sorted(each[:12] for each in hashes))}; names, "
                "shapes, groups and options must be equal on all ranks"
            )


@torch.no_grad()
def step_without_change(optimizer: Optimizer, parameters: Sequence[Tensor]) -> None:
    """A step of zero gradients and rates over `parameters`, the others left out."""
    every = [each for group in optimizer.param_groups for each in group["params"]]
    grads, rates = [each.grad for each in every], [group["lr"] for group in optimizer.param_groups]
    for each in every:
        each.grad = None
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for each, grad in zip(every, grads, strict=True):
        each.grad = grad


def require_alike(name: str, kept: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """
    Raises:
        ConfigError: They differ in names or shapes.
    """
    here, there = ({key: tuple(tensor.shape) for key, tensor in sorted(state.items())} for state in (kept, found))
    if here != there:
        raise ConfigError(
            f"this optimizer keeps {here} of {name} on this rank, the state has {there}; load it with the rule and the "
            "ranks that saved it"
        )

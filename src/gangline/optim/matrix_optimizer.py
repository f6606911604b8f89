"""An optimizer of torch whose matrices follow a matrix rule, computed once each, wherever parameters are.

Parameters may be plain, with copies on other ranks (DDP), or DTensors (FSDP2, tensor parallelism, both, HSDP). Every
rank creates the optimizer with the same groups and calls `step` together; each set of ranks that hold the same
parameters has a plan of its own.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from gangline.errors import ConfigError, NonFiniteError, TrainingError
from gangline.optim.executors.agreement import agree_on_gradients, require_equal_plans
from gangline.optim.executors.exchange import UpdateExchange
from gangline.optim.executors.holders import Holders, ProcessGroups, Ranks, holders_of, ranks_of
from gangline.optim.executors.matrix_executor import MatrixExecutor
from gangline.optim.executors.owner_reduction import OwnerReduction
from gangline.optim.executors.parameter_parts import gather_parts, matrices_of
from gangline.optim.executors.rank_updates import MatrixParameter, UpdateStep, local_part
from gangline.optim.executors.team_updates import teams_of
from gangline.optim.plan.build import build_plan
from gangline.optim.plan.matrix import FragmentSplit
from gangline.optim.plan.optimizer_plan import OptimPlan, PlanOptions
from gangline.optim.rules.matrix_rule import MatrixRule

Group = dict[str, Any]
"""Parameter group of torch, with `names` of its parameters and `kind`: `matrix` or `elementwise`; one of matrices may
have `splits`: name to `FragmentSplit`."""


class MatrixOptimizer(Optimizer):
    """Steps of a matrix rule and of an elementwise optimizer over one list of parameter groups.

    State of the rule is in `state[parameter]` from the start: in the layout of the parameter, or of the whole matrix
    at its owner alone.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        rule: MatrixRule,
        elementwise: Callable[[list[Group]], Optimizer] = torch.optim.AdamW,
        replicas: ProcessGroup | DeviceMesh | None = None,
        options: PlanOptions | None = None,
        shares_state: bool = False,
        non_finite: Literal["raise", "skip"] = "raise",
    ) -> None:
        """Collective.

        Args:
            groups: As `partition_params` makes them, or written by hand.
            rule: Of the groups of kind `matrix`.
            elementwise: Creates the optimizer of the other groups.
            replicas: Ranks with copies of plain parameters and of DTensors whose mesh has no dimension of copies.
            options: Of the plans.
            shares_state: Each rank keeps the state of plain parameters that it owns, as ZeRO-1 does; without it all do.
            non_finite: What a gradient does that is not finite: end the step before it changes anything, or leave its
                parameter as it is.

        Raises:
            ConfigError: A group or a parameter that no plan takes, or plans that differ between ranks.
        """
        _require_groups(groups)
        parameters = list(_matrix_parameters(groups))
        groups = [{name: value for name, value in each.items() if name not in ("names", "splits")} for each in groups]
        matrix = [each for each in groups if each["kind"] == "matrix"]
        others = [each for each in groups if each["kind"] == "elementwise"]
        self.rule, self._options, self._shares_state = rule, options or PlanOptions(), shares_state
        self._non_finite = non_finite
        for each in matrix:
            each.update({name: value for name, value in rule.defaults.items() if name not in each}, step=0)
        self._elementwise = elementwise(others) if others else None
        super().__init__([*matrix, *(self._elementwise.param_groups if self._elementwise else [])], {})
        self._executors = self._build(parameters, ranks_of(replicas))
        for executor in self._executors:
            executor.create_state(self.state.__getitem__)
        self.reduction = self._reduction() if shares_state else None
        """Of DDP's gradients to owners, to be registered as its hook; None: ranks keep the state of all matrices."""
        self._is_counted = False
        self.is_whole = True
        """False: a step was interrupted, so that some parameters and states are of the next one."""

    @property
    def plans(self) -> tuple[OptimPlan, ...]:
        """One for each set of ranks that hold the same parameters, as far as this rank is one of them."""
        return tuple(each.plan for each in self._executors)

    @property
    def executors(self) -> tuple[MatrixExecutor, ...]:
        """Of `plans`."""
        return tuple(self._executors)

    @property
    def waited_seconds(self) -> float:
        """That this rank stood still for others since the start; on a GPU next to nothing, as its stream waits."""
        return sum(traffic.waited_seconds for each in self._executors for traffic in each.traffic.values())

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # torch types it as overloads
        """Update all parameters that have a gradient on any rank; collective.

        Raises:
            NonFiniteError: A gradient is not finite; nothing was changed.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        active = [self._active(executor) for executor in self._executors]
        self.is_whole = False
        self._step_elementwise()
        group_of = {each: group for group in self.param_groups for each in group["params"]}
        for executor, places in zip(self._executors, active, strict=True):
            number = group_of[executor.parameters[0].parameter]["step"]
            executor.step(UpdateStep(number, places, self.state.__getitem__, group_of.__getitem__))
        if not self._is_counted:
            self._require_each_once()
        for group in self.param_groups:
            if group["kind"] == "matrix":
                group["step"] += 1
        self.is_whole = True
        return loss

    def add_param_group(self, param_group: Group) -> None:
        """Refused once the optimizer exists, as its plans are of the groups that it was created with.

        Raises:
            ConfigError: Always, but for the calls that torch makes while it creates the optimizer.
        """
        if "_executors" in vars(self):
            raise ConfigError(
                "a matrix optimizer takes no parameter group after its plans are made; create it anew with all groups"
            )
        super().add_param_group(param_group)

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave on this rank, under the same plans; local.

        State of matrices keeps its dtype: torch alone would cast it to that of the parameter.

        Raises:
            ConfigError: It is of other groups, of another rule or of other plans; nothing was changed.
        """
        groups, kinds = state_dict["param_groups"], [each["kind"] for each in self.param_groups]
        if [each.get("kind") for each in groups] != kinds:
            raise ConfigError(f"the state has groups {[each.get('kind') for each in groups]}, this optimizer {kinds}")
        ours = chain.from_iterable(each["params"] for each in self.param_groups)
        index_of = dict(zip(ours, chain.from_iterable(each["params"] for each in groups), strict=False))
        matrices = [each for executor in self._executors for each in executor.parameters]
        found = {each.parameter: state_dict["state"].get(index_of.get(each.parameter), {}) for each in matrices}
        kept = {each.parameter: self.state[each.parameter] for each in matrices}
        for each in matrices:
            _require_alike(each.name, kept[each.parameter], found[each.parameter])
        loaded = {index_of[each] for each in kept}
        others = {index: state for index, state in state_dict["state"].items() if index not in loaded}
        super().load_state_dict({**state_dict, "state": others})
        for parameter, state in kept.items():
            for name, value in state.items():
                value.copy_(found[parameter][name])
            self.state[parameter] = state

    def create_state(self) -> None:
        """Create all state of this rank that does not exist, that of the elementwise optimizer too; local.

        torch creates the latter in a step: this one has zero gradients and a rate of zero.
        """
        for executor in self._executors:
            executor.create_state(self.state.__getitem__)
        if self._elementwise is None:
            return
        self._share_state(self._elementwise)
        local = getattr(self._elementwise, "optim", self._elementwise)
        without = [each for group in local.param_groups for each in group["params"] if not self.state.get(each)]
        if without:
            _step_without_change(local, without)

    def _build(self, parameters: Sequence[MatrixParameter], replicas: Ranks) -> list[MatrixExecutor]:
        found: dict[Holders, list[MatrixParameter]] = {}
        for each in parameters:
            found.setdefault(holders_of(each.parameter, replicas), []).append(each)
        process_groups = ProcessGroups()
        ordered = sorted(found.items(), key=lambda each: min(one.name for one in each[1]))
        return [self._executor(holders, alike, process_groups) for holders, alike in ordered]

    def _executor(
        self, holders: Holders, parameters: Sequence[MatrixParameter], process_groups: ProcessGroups
    ) -> MatrixExecutor:
        parameters = sorted(parameters, key=lambda each: each.name)
        device = local_part(parameters[0].parameter).device
        hosts, copies = (
            UpdateExchange(process_groups.of(holders.hosts)),
            UpdateExchange(process_groups.of(holders.copies)),
        )
        plan = build_plan(
            [matrix for each in parameters for matrix in matrices_of(each)], self.rule.spec, ranks=copies.ranks,
            hosts=hosts.ranks, options=self._options,
        )  # fmt: skip
        require_equal_plans(plan, (hosts, copies), device)
        return MatrixExecutor(
            parameters, plan, self.rule, parts=gather_parts(parameters, hosts, device), hosts=hosts, copies=copies,
            prepares_all=not self._shares_state or hosts.ranks > 1,
            teams=teams_of(plan, copies, holders.copies, process_groups),
        )  # fmt: skip

    def _reduction(self) -> OwnerReduction | None:
        """Of plain parameters with copies."""
        for executor in self._executors:
            hosts, copies = executor.exchanges
            if hosts.ranks == 1 and copies.ranks > 1:
                return OwnerReduction(executor.owners, copies)
        return None

    def _active(self, executor: MatrixExecutor) -> frozenset[int]:
        """Places of the parameters that this step updates, equal on all ranks.

        Raises:
            NonFiniteError: On all ranks, with the names.
        """
        found = agree_on_gradients([each.parameter for each in executor.parameters], executor.exchanges)
        if found.not_finite and self._non_finite == "raise":
            names = ", ".join(executor.parameters[place].name for place in sorted(found.not_finite)[:8])
            raise NonFiniteError(f"gradients of {names} are not finite; nothing was updated")
        return found.present - found.not_finite

    def _step_elementwise(self) -> None:
        """Step with the groups and the state of this optimizer, which a loader may have replaced."""
        if self._elementwise is None:
            return
        self._share_state(self._elementwise)
        self._elementwise.step()

    def _share_state(self, elementwise: Optimizer) -> None:
        groups = [each for each in self.param_groups if each["kind"] == "elementwise"]
        local = getattr(elementwise, "optim", elementwise)
        local.state = self.state
        if local is elementwise:
            elementwise.param_groups = groups
            return
        for theirs, ours in zip(elementwise.param_groups, groups, strict=True):  # of one that shares state: ZeRO-1
            theirs.update({name: value for name, value in ours.items() if name != "params"})

    def _require_each_once(self) -> None:
        """
        Raises:
            TrainingError: On all ranks: the first step computed fewer or more updates than there are matrices.
        """
        for executor in self._executors:
            computed = executor.computed_by_all()
            if computed != executor.wanted:
                raise TrainingError(
                    f"the first step has {executor.wanted} matrices, but {computed} updates were computed"
                )
        self._is_counted = True


@torch.no_grad()
def _step_without_change(optimizer: Optimizer, parameters: Sequence[Tensor]) -> None:
    """A step of zero gradients and rates over `parameters`, the others left out."""
    every = [each for group in optimizer.param_groups for each in group["params"]]
    grads, rates = [each.grad for each in every], [group["lr"] for group in optimizer.param_groups]
    for each in every:
        each.grad = None
    for each in parameters:
        each.grad = torch.zeros_like(each)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for each, grad in zip(every, grads, strict=True):
        each.grad = grad


def _require_alike(name: str, kept: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """
    Raises:
        ConfigError: They differ in names or shapes.
    """
    here, there = ({key: tuple(each.shape) for key, each in sorted(state.items())} for state in (kept, found))
    if here != there:
        raise ConfigError(
            f"this optimizer keeps {here} of {name} on this rank, the state has {there}; load it with the rule and the "
            "ranks that saved it"
        )


def _require_groups(groups: Sequence[Group]) -> None:
    """
    Raises:
        ConfigError: A kind is unknown, names are missing or claimed twice, or there is no matrix.
    """
    names = Counter(name for each in groups for name in each.get("names", ()))
    for each in groups:
        if each.get("kind") not in ("matrix", "elementwise") or len(each.get("names", ())) != len(each["params"]):
            raise ConfigError(
                "each parameter group has kind 'matrix' or 'elementwise' and a name for each parameter, found "
                f"{ {key: each[key] for key in ('kind', 'names') if key in each} }; partition_params makes such groups"
            )
    if twice := sorted(name for name, count in names.items() if count > 1):
        raise ConfigError(f"parameters in two groups: {', '.join(twice[:8])}")
    if not any(each["kind"] == "matrix" and each["params"] for each in groups):
        raise ConfigError("the matrix rule has no matrix; check exclude and match, or use an elementwise rule alone")


def _matrix_parameters(groups: Sequence[Group]) -> Iterator[MatrixParameter]:
    for group in groups:
        if group["kind"] == "matrix":
            for name, parameter in zip(group["names"], group["params"], strict=True):
                yield MatrixParameter(name, parameter, group.get("splits", {}).get(name, FragmentSplit()))

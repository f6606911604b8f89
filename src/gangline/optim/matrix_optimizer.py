"""An optimizer of torch whose matrices follow a matrix rule, computed once each, wherever parameters are.

Parameters may be plain, with copies on other ranks (DDP), or DTensors (FSDP2, tensor parallelism, both, HSDP). Every
rank creates the optimizer with the same groups and calls `step` together; each set of ranks that hold the same
parameters has a plan of its own.

Updates of other owners may arrive after the step: `step_async().wait()` is `step()` with other work in between, and
`overlap_forward` lets the next forward pass do the waiting.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from gangline.errors import ConfigError, TrainingError
from gangline.optim.executors.agreement import (
    GradientAgreement,
    require_alike,
    require_equal_plans,
    step_without,
    step_without_change,
)
from gangline.optim.executors.exchange import UpdateExchange
from gangline.optim.executors.forward_overlap import ForwardOverlap
from gangline.optim.executors.holders import Holders, ProcessGroups, Ranks, holders_of, ranks_of
from gangline.optim.executors.matrix_executor import MatrixExecutor
from gangline.optim.executors.owner_reduction import OwnerReduction
from gangline.optim.executors.parameter_groups import (
    Group,
    elementwise_names,
    gather_parts,
    matrices_of,
    matrix_parameters,
    options_by_parameter,
    require_groups,
)
from gangline.optim.executors.publish import OutstandingUpdates
from gangline.optim.executors.rank_updates import MatrixParameter, StateFiles, UpdateStep, local_part
from gangline.optim.executors.team_updates import teams_of
from gangline.optim.plan.build import build_plan
from gangline.optim.plan.optimizer_plan import OptimPlan, PlanOptions
from gangline.optim.rules.matrix_rule import MatrixRule
from gangline.spec.config.matrix_rule import REPEATS_UNDER_ZERO1

_IN_FLIGHT = 2
"""Buckets of a step that nothing overlaps, at once: memory for more would buy nothing."""


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
        files: StateFiles | None = None,
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
            files: Keep the state of matrices; None: it is in memory.
            non_finite: What a gradient does that is not finite: end the step before it changes anything, or leave its
                parameter as it is.

        Raises:
            ConfigError: A group or a parameter that no plan takes, or plans that differ between ranks.
        """
        require_groups(groups)
        if shares_state and options is not None and options.copies == "repeat":
            raise ConfigError(REPEATS_UNDER_ZERO1)
        parameters, names = list(matrix_parameters(groups)), elementwise_names(groups)
        groups = [{name: value for name, value in group.items() if name not in ("names", "splits")} for group in groups]
        matrix = [group for group in groups if group["kind"] == "matrix"]
        others = [group for group in groups if group["kind"] == "elementwise"]
        self.rule, self._options, self._shares_state = rule, options or PlanOptions(), shares_state
        self._files = files
        for each in matrix:
            each.update({name: value for name, value in rule.defaults.items() if name not in each}, step=0)
        self._elementwise = elementwise(others) if others else None
        super().__init__([*matrix, *(self._elementwise.param_groups if self._elementwise else [])], {})
        self._executors = self._build(parameters, ranks_of(replicas))
        self._gradients = GradientAgreement(self._executors, names, raises=non_finite == "raise")
        self._create_matrix_state()
        self.reduction = self._reduction() if shares_state else None
        """Hook that reduces DDP's gradients to owners; None: ranks keep the state of all matrices."""
        self._is_counted = False
        self._outstanding: OutstandingUpdates | None = None
        self._overlap: ForwardOverlap | None = None
        self.is_whole = True
        """False: updates of a step are outstanding, or it was interrupted: some parameters and states are of the next
        one."""

    @property
    def plans(self) -> tuple[OptimPlan, ...]:
        """One for each set of ranks that hold the same parameters, as far as this rank is one of them."""
        return tuple(executor.plan for executor in self._executors)

    @property
    def executors(self) -> tuple[MatrixExecutor, ...]:
        """Executors of `plans`."""
        return tuple(self._executors)

    @property
    def waited_seconds(self) -> float:
        """Time that this rank stood still for others since the start; on a GPU next to nothing, as its stream waits."""
        return sum(traffic.waited_seconds for executor in self._executors for traffic in executor.traffic.values())

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # torch types it as overloads
        """Update all parameters that have a gradient on any rank; collective.

        After `overlap_forward` some updates are outstanding when it returns, else none.

        Raises:
            NonFiniteError: A gradient is not finite; nothing was changed.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._overlap is not None:
            self.step_async()
        else:
            self._begin_step(in_flight=_IN_FLIGHT).wait()
        return loss

    @torch.no_grad()
    def step_async(self) -> OutstandingUpdates:
        """Begin a step: compute this rank's updates and start to exchange them; collective.

        When it returns, gradients are no longer needed, and rates and states are those after the step. Matrices with
        copies on other ranks are updated by `wait` of the handle, which needs nothing more of these ranks than this
        call; until then all their updates are in memory. What a step left outstanding is waited for before the next one
        begins, a state is taken or loaded.

        Raises:
            NonFiniteError: As of `step`.
        """
        return self._begin_step(in_flight=None)

    def _begin_step(self, *, in_flight: int | None) -> OutstandingUpdates:
        """Begin a step with that many buckets in flight at a time; None: all."""
        self.wait()
        active, left_out = self._gradients.agree()
        if self._overlap is not None and not self._overlap.order:
            exchanges = chain.from_iterable(executor.exchanges for executor in self._executors)
            self._overlap.agree(exchanges, local_part(self._executors[0].parameters[0].parameter).device)
        self.is_whole = False
        self._step_elementwise(left_out)
        options = options_by_parameter(self.param_groups)
        sends = []
        for executor, places in zip(self._executors, active, strict=True):
            number = options[executor.parameters[0].parameter]["step"]
            step = UpdateStep(number, places, self.state.__getitem__, options.__getitem__, self._files)
            sends.extend(executor.begin_step(step))
        if not self._is_counted:
            self._require_each_once()
        for group in self.param_groups:
            if group["kind"] == "matrix":
                group["step"] += 1
        self._opt_called = True  # what schedulers of torch look at
        ordered = sends if self._overlap is None else [sends[bucket] for bucket in self._overlap.order]
        self._outstanding = OutstandingUpdates(ordered, in_flight=in_flight or len(ordered), done=self._arrived)
        return self._outstanding

    def wait(self) -> None:
        """Apply all updates that a step left outstanding; local: all ranks have sent them in that step."""
        if self._outstanding is not None:
            self._outstanding.wait()

    def overlap_forward(self, model: nn.Module, *, units: Iterable[nn.Module]) -> None:
        """Leave updates of other owners to the next forward pass from now on; local, on all ranks alike.

        Each unit waits for the updates of its parameters as it is called, the rest of `model` as its own forward pass
        begins; at its end none is outstanding. Code that reads parameters in between, or uses those of a unit without
        calling it, calls `wait` before; `state_dict` and `load_state_dict` of the model do.

        Args:
            model: Also inside DDP; compiled and sharded before.
            units: Its blocks, in any order; under FSDP2 on a GPU, whose streams wait once, they all wait at the start.

        Raises:
            ConfigError: Plans were made without `overlap="forward"`, or units or parameters are not of the model.
        """
        if self._options.overlap == "off" or self._overlap is not None:
            raise ConfigError('overlap_forward is called once, and needs PlanOptions(overlap="forward"), found another')
        self.wait()
        buckets = [bucket for executor in self._executors for bucket in executor.published]
        if not buckets:
            return
        model = model.module if isinstance(model, DistributedDataParallel) else model
        gathers = isinstance(model, FSDPModule) and next(iter(buckets[0])).device.type == "cuda"
        self._overlap = ForwardOverlap(model, [] if gathers else [*units], buckets, self._apply_first)

    def _apply_first(self, buckets: int) -> None:
        if self._outstanding is not None:
            self._outstanding.apply(buckets)

    def _arrived(self) -> None:
        self.is_whole = True

    def add_param_group(self, param_group: Group) -> None:
        """Refused once the optimizer exists, as its plans are of the groups that it was created with.

        Raises:
            ConfigError: Always, but for the calls that torch makes while it creates the optimizer.
        """
        if "_executors" in vars(self):
            raise ConfigError(
                "a matrix optimizer takes no parameter group after its plans are made; create a new one with all groups"
            )
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """State dict of torch, as of the end of a step; waits for outstanding updates."""
        self.wait()
        return super().state_dict()

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave on this rank, under the same plans; waits for outstanding updates, else local.

        State of matrices keeps its dtype: torch alone would cast it to that of the parameter.

        Raises:
            ConfigError: It is of other groups, of another rule or of other plans; nothing was changed.
        """
        self.wait()
        groups, kinds = state_dict["param_groups"], [group["kind"] for group in self.param_groups]
        if [group.get("kind") for group in groups] != kinds:
            raise ConfigError(f"the state has groups {[group.get('kind') for group in groups]}, this optimizer {kinds}")
        ours = chain.from_iterable(group["params"] for group in self.param_groups)
        index_of = dict(zip(ours, chain.from_iterable(group["params"] for group in groups), strict=False))
        matrices = [matrix_parameter for executor in self._executors for matrix_parameter in executor.parameters]
        found = {
            matrix_parameter.parameter: state_dict["state"].get(index_of.get(matrix_parameter.parameter), {})
            for matrix_parameter in matrices
        }
        kept = {matrix_parameter.parameter: self.state[matrix_parameter.parameter] for matrix_parameter in matrices}
        for matrix in matrices:
            require_alike(matrix.name, kept[matrix.parameter], found[matrix.parameter])
        loaded = {index_of[tensor] for tensor in kept}
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
        self._create_matrix_state()
        if self._elementwise is None:
            return
        self._share_state(self._elementwise)
        local = getattr(self._elementwise, "optim", self._elementwise)
        without = [each for group in local.param_groups for each in group["params"] if not self.state.get(each)]
        if without:
            step_without_change(local, without)

    def _create_matrix_state(self) -> None:
        for executor in self._executors:
            for place, parameter in enumerate(executor.parameters):
                executor.create_state(place, self.state.__getitem__, without_memory=self._files is not None)
                if self._files is not None:
                    self._files.created(parameter.parameter, self.state)

    def _build(self, parameters: Sequence[MatrixParameter], replicas: Ranks) -> list[MatrixExecutor]:
        found: dict[Holders, list[MatrixParameter]] = {}
        for parameter in parameters:
            found.setdefault(holders_of(parameter.parameter, replicas), []).append(parameter)
        process_groups = ProcessGroups()
        ordered = sorted(found.items(), key=lambda each: min(one.name for one in each[1]))
        return [self._executor(holders, alike, process_groups) for holders, alike in ordered]

    def _executor(
        self, holders: Holders, parameters: Sequence[MatrixParameter], process_groups: ProcessGroups
    ) -> MatrixExecutor:
        parameters = sorted(parameters, key=lambda parameter: parameter.name)
        device = local_part(parameters[0].parameter).device
        hosts = UpdateExchange(process_groups.of(holders.hosts))
        copies = UpdateExchange(process_groups.of(holders.copies))
        plan = build_plan(
            [matrix for parameter in parameters for matrix in matrices_of(parameter)], self.rule.spec,
            ranks=1 if self._options.copies == "repeat" else copies.ranks, hosts=hosts.ranks, options=self._options,
        )  # fmt: skip
        require_equal_plans(plan, (hosts, copies), device)
        return MatrixExecutor(
            parameters, plan, self.rule, parts=gather_parts(parameters, hosts, device), hosts=hosts, copies=copies,
            prepares_all=not self._shares_state or hosts.ranks > 1,
            teams=teams_of(plan, copies, holders.copies, process_groups),
        )  # fmt: skip

    def _reduction(self) -> OwnerReduction | None:
        """Reduction of plain parameters with copies."""
        for executor in self._executors:
            hosts, copies = executor.exchanges
            if hosts.ranks == 1 and copies.ranks > 1:
                return OwnerReduction(executor.owners, copies)
        return None

    def _step_elementwise(self, left_out: Collection[Tensor]) -> None:
        """Step with the groups and the state of this optimizer, which a loader may have replaced."""
        if self._elementwise is None:
            return
        self._share_state(self._elementwise)
        step_without(self._elementwise, left_out)

    def _share_state(self, elementwise: Optimizer) -> None:
        groups = [group for group in self.param_groups if group["kind"] == "elementwise"]
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

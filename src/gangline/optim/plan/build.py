"""Building of a plan from matrices, a rule and options. Pure: the same arguments in any order give the same plan."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gangline.errors import ConfigError
from gangline.optim.plan.buckets import block_buckets, buckets
from gangline.optim.plan.costs import DTYPE_BYTES, RuleSpec
from gangline.optim.plan.geometry import GeometryPlan, GeometryProblem, choose_geometry, keeps_memory, owner_by_owner
from gangline.optim.plan.groups import GroupPlan, HostItem, MicroGroup, plan_groups, unshared
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.optim.plan.optimizer_plan import OptimPlan, PlannedMatrix, PlanOptions
from gangline.optim.plan.owners import WorkItem, falling, largest_first, least_makespan, loads_of, owner_map
from gangline.optim.plan.team import TeamMap, teams
from gangline.units import Bytes, Elements, Seconds, format_bytes


def build_plan(
    matrices: Sequence[LogicalMatrix],
    rule: RuleSpec,
    *,
    ranks: int = 1,
    hosts: int = 1,
    options: PlanOptions | None = None,
) -> OptimPlan:
    """Owner, host and group of every matrix.

    Args:
        matrices: All that the rule updates, in any order.
        rule: The same on all ranks.
        ranks: That hold the same parameters: owners.
        hosts: That every matrix is cut over, by tensor parallelism, FSDP or both.
        options: Ceilings, rates and choices.

    Raises:
        ConfigError: There is no matrix, one is claimed twice, or no plan keeps within the options.
    """
    if ranks < 1 or hosts < 1:
        raise ConfigError(f"a plan needs 1 owner and 1 host or more, found {ranks} and {hosts}")
    return _Builder(_model_order(matrices), rule, ranks, hosts, options or PlanOptions()).build()


def _model_order(matrices: Sequence[LogicalMatrix]) -> tuple[LogicalMatrix, ...]:
    """Sort by name, numbers by value, fragments by their rows: an order that every rank finds by itself.

    Raises:
        ConfigError: There is none, or two have one key.
    """
    if not matrices:
        raise ConfigError("the matrix rule has no matrix; check exclude and match, or use an elementwise rule alone")
    if twice := sorted(key for key, count in Counter(matrix.key for matrix in matrices).items() if count > 1):
        raise ConfigError(f"claimed twice by matrix rules: {', '.join(' '.join(key).strip() for key in twice[:8])}")

    def natural(fqn: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", fqn)]

    return tuple(sorted(matrices, key=lambda matrix: (natural(matrix.fqn), matrix.rows[:1], matrix.key)))


def _element_bytes(rule: RuleSpec, dtype: str) -> int:
    if dtype not in DTYPE_BYTES:
        raise ConfigError(f"state of rule {rule.name!r} has dtype {dtype!r}; use one of {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


class _Builder:
    """The arguments of a plan, and what is computed of each matrix once."""

    def __init__(
        self, matrices: tuple[LogicalMatrix, ...], rule: RuleSpec, ranks: int, hosts: int, options: PlanOptions
    ) -> None:
        self._matrices, self._rule, self._ranks, self._hosts, self._options = matrices, rule, ranks, hosts, options
        counts = Counter(matrix.shape for matrix in matrices)
        by_shape = {shape: self._cost(shape, count) for shape, count in counts.items()}
        self._seconds = [by_shape[matrix.shape][0] for matrix in matrices]
        self._refresh = [by_shape[matrix.shape][1] for matrix in matrices]
        self._state = [by_shape[matrix.shape][2] for matrix in matrices]
        self._items = [
            WorkItem(key=matrix.key, cost=Seconds(seconds), owner_bytes=Bytes(state))
            for matrix, seconds, state in zip(matrices, self._seconds, self._state, strict=True)
        ]
        self._hosted = [
            HostItem(key=matrix.key, seconds=Seconds(seconds), hosted=matrix.size(options.element_bytes))
            for matrix, seconds in zip(matrices, self._seconds, strict=True)
        ]

    def build(self) -> OptimPlan:
        """Raises ConfigError: no plan keeps within the options."""
        self._check_oversize()
        if self._options.team == "auto":
            return self._with_teams()
        found = [(plan, self._groups(plan.owners)) for plan in self._geometries()]
        geometry, groups = min(found, key=lambda each: max(plan.times.total_seconds for plan in each[1]))
        return self._plan(geometry, [plan.groups for plan in groups])

    def _cost(self, shape: tuple[int, int], count: int) -> tuple[float, float, int]:
        """Cost of one of `count` matrices: seconds of a mean step, as one of an equal share that are computed together,
        and of a refresh, and bytes of owner state."""
        device, rule = self._options.device, self._rule
        together = self._options.together(shape, count // (self._ranks * self._hosts))
        state = sum(
            rows * columns * _element_bytes(rule, dtype)
            for (rows, columns), dtype, where in rule.state(shape).values()
            if where == "owner"
        )
        seconds = device.seconds(rule, shape, together).value / together
        return seconds, device.refresh_seconds(rule, shape).value, state

    def _check_oversize(self) -> None:
        large = [item for item in self._hosted if item.hosted.value > self._options.c_max_bytes]
        if large and self._hosts > 1 and self._options.oversize == "error":
            first = max(large, key=lambda item: item.hosted)
            raise ConfigError(
                f"{' '.join(first.key).strip()} needs {format_bytes(first.hosted.value)} on its host, c_max_bytes"
                f" allows {format_bytes(self._options.c_max_bytes)}; use c_max_bytes = {first.hosted.value:.0f}, or "
                'oversize = "own_slot"'
            )

    def _problem(self) -> GeometryProblem:
        most = self._options.most_elements
        buffers = (
            block_buckets(self._matrices) if most is None else buckets(self._matrices, Elements(most * self._hosts))
        )
        return GeometryProblem(
            items=self._items, buckets=buffers, ranks=self._ranks, alpha=self._options.alpha,
            memory=self._options.memory, rate=self._options.sync,
            element_bytes=self._options.element_bytes / self._hosts,
        )  # fmt: skip

    def _geometries(self) -> list[GeometryPlan]:
        """The best geometry, then G3 of a map over owners and hosts together where that is allowed."""
        problem, choice = self._problem(), self._options.geometry
        if not all(matrix.is_contiguous for matrix in self._matrices):
            if choice not in ("auto", "owner"):
                raise ConfigError(
                    f"geometry = {choice!r} needs fragments of contiguous rows, and interleaved ones are among them;"
                    " use geometry = 'owner' or 'auto'"
                )
            choice = "owner"
        joint = []
        if self._hosts > 1 and self._ranks > 1 and choice in ("auto", "owner"):
            places = owner_map(self._items, self._ranks * self._hosts).owners
            plan = owner_by_owner(problem, [place // self._hosts for place in places])
            joint = [plan] if keeps_memory(problem, plan) else []
        try:
            return [choose_geometry(problem, choice), *joint]
        except ConfigError:
            if not joint:
                raise
            return joint

    def _groups(self, owners: Sequence[int]) -> list[GroupPlan]:
        """Micro-groups of each owner; owners whose items are alike are planned once."""
        of_rank: list[list[int]] = [[] for _ in range(self._ranks)]
        for at in falling(self._items):
            of_rank[owners[at]].append(at)
        planned: dict[tuple[tuple[float, float], ...], GroupPlan] = {}
        plans = []
        for places in of_rank:
            alike = tuple((self._hosted[at].seconds.value, self._hosted[at].hosted.value) for at in places)
            if alike not in planned:
                planned[alike] = self._groups_of(places)
            by_position = planned[alike].groups
            groups = tuple(tuple(tuple(places[at] for at in host) for host in group) for group in by_position)
            plans.append(replace(planned[alike], groups=groups))
        return plans

    def _groups_of(self, places: Sequence[int]) -> GroupPlan:
        """Groups of one owner, by position in `places`; without hosts to share with there is nothing to exchange."""
        c_max = Bytes(self._options.c_max_bytes)
        if self._hosts == 1:
            times = unshared(sum(self._seconds[at] for at in places))
            return GroupPlan(groups=((tuple(range(len(places))),),) if places else (), times=times)
        return plan_groups([self._hosted[at] for at in places], self._hosts, c_max=c_max, rate=self._options.exchange)

    def _with_teams(self) -> OptimPlan:
        if self._hosts > 1:
            raise ConfigError(
                f"team = 'auto' is for whole matrices, as ddp and zero1 have them; found some cut over {self._hosts} "
                "hosts, which deal updates to each other already; use team = 'off', and for fused layers a route with "
                "split, which makes the largest updates smaller"
            )
        if self._options.geometry not in ("auto", "owner") or not self._rule.is_shareable:
            raise ConfigError(
                f"team = 'auto' needs Muon and geometry 'owner', found {self._rule.name} and geometry "
                f"{self._options.geometry!r}; use team = 'off', or geometry = 'auto'"
            )
        shared = teams(self._items, self._ranks)
        geometry = owner_by_owner(self._problem(), [members[0] for members in shared.members])
        held = [[at for at, members in enumerate(shared.members) if rank in members] for rank in range(self._ranks)]
        return self._plan(geometry, [((tuple(places),),) if places else () for places in held], shared)

    def _plan(
        self, geometry: GeometryPlan, groups: Sequence[tuple[MicroGroup, ...]], shared: TeamMap | None = None
    ) -> OptimPlan:
        owners = geometry.owners
        place = {
            at: (host, group)
            for each in groups
            for group, hosts in enumerate(each)
            for host, places in enumerate(hosts)
            for at in places
        }
        phases = self._phases([owner * self._hosts + place[at][0] for at, owner in enumerate(owners)])
        seconds = shared.shares if shared else self._seconds
        return OptimPlan(
            rule=self._rule.name, dtype=self._rule.dtype, refresh_every=self._rule.refresh_every,
            ranks=self._ranks, hosts=self._hosts,
            matrices=tuple(
                PlannedMatrix(
                    matrix=matrix, seconds=seconds[at], refresh_seconds=self._refresh[at], owner=owners[at],
                    host=place[at][0], group=place[at][1], phase=phases[at],
                    team=shared.members[at] if shared and len(shared.members[at]) > 1 else (),
                    is_oversize=self._hosts > 1 and self._hosted[at].hosted.value > self._options.c_max_bytes,
                )
                for at, matrix in enumerate(self._matrices)
            ),
            geometry=geometry.buckets[0].kind, buckets=geometry.buckets, groups=tuple(groups),
            loads=shared.loads if shared else tuple(loads_of(owners, self._seconds, self._ranks)),
            bound=shared.bound if shared else least_makespan(self._seconds, self._ranks), price=geometry.price,
            owner_state_bytes=tuple(int(each) for each in loads_of(owners, self._state, self._ranks)),
            options=self._options,
        )  # fmt: skip

    def _phases(self, places: Sequence[int]) -> Sequence[int]:
        if self._rule.refresh_every == 1 or not any(self._refresh) or self._options.refresh == "together":
            return [0] * len(places)
        refreshes = [
            WorkItem(key=item.key, cost=Seconds(cost)) for item, cost in zip(self._items, self._refresh, strict=True)
        ]
        return stagger(refreshes, places, ranks=self._ranks * self._hosts, every=self._rule.refresh_every)


def stagger(items: Sequence[WorkItem], owners: Sequence[int], *, ranks: int, every: int) -> tuple[int, ...]:
    """Phase of every item, which is refreshed in steps whose number leaves this rest: each owner's by LPT, its heaviest
    phase first.

    A refresh costs many times a step, and every step ends with the slowest owner: all run their heaviest step at once.

    Args:
        items: Refreshes; costs of one kind.
        owners: Rank of each item.
        ranks: All ranks.
        every: Steps of a period.
    """
    phases = [0] * len(items)
    for rank in range(ranks):
        mine = [at for at, owner in enumerate(owners) if owner == rank]
        work = [items[at] for at in mine]
        packed = largest_first(work, every)
        loads = loads_of(packed, [item.cost.value for item in work], every)
        order = sorted(range(every), key=lambda phase: (-loads[phase], phase))
        for at, phase in zip(mine, packed, strict=True):
            phases[at] = order.index(phase)
    return tuple(phases)

"""One step of a matrix rule on one set of holders: prepare, gather, compute, scatter, publish, apply.

Matrices that are cut over hosts are assembled on one of them, group by group: while a group computes, the next one is
gathered and the last one scattered; tensors in one dimension travel. Ranks with copies compute the matrices that they
own; what sends the updates to the others, bucket by bucket, is left to the caller. Where a matrix is whole, or has no
copies, the exchange in question moves nothing.
"""

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gangline.optim.executors.exchange import Pending, Traffic, UpdateExchange
from gangline.optim.executors.holders import MatrixPiece, Part, overlap
from gangline.optim.executors.publish import Send, UpdatePublisher
from gangline.optim.executors.rank_updates import MatrixParameter, RankUpdates, StateOf, UpdateStep, local_part
from gangline.optim.executors.team_updates import Team
from gangline.optim.plan.groups import MicroGroup
from gangline.optim.plan.optimizer_plan import OptimPlan
from gangline.optim.rules.matrix_rule import MatrixRule

_TRAVELS = {8: torch.float64, 4: torch.float32, 2: torch.bfloat16}

Shapes = Sequence[tuple[int, int]]


class MatrixExecutor:
    """Updates of parameters with the same holders; all of these make the same calls in the same order."""

    def __init__(
        self, parameters: Sequence[MatrixParameter], plan: OptimPlan, rule: MatrixRule, *,
        parts: Sequence[Sequence[Part]], hosts: UpdateExchange, copies: UpdateExchange, prepares_all: bool,
        teams: Mapping[Sequence[int], Team] | None = None,
    ) -> None:  # fmt: skip
        """Args:
        parameters: In any order, of one device.
        plan: Of their matrices; its owners are all copies, or each copy is the only one.
        rule: Of the plan.
        parts: What each host holds of each parameter: `parts[host][parameter]`.
        hosts: Ranks that each parameter is cut over.
        copies: Ranks that hold the same parts.
        prepares_all: Does a rank keep the sharded state of parameters that others own?
        teams: That this rank is in, by their places among copies.
        """
        self.wanted = 0
        """Updates that all holders together had to compute since the start."""
        self.plan, self.parameters, self._hosts, self._copies = plan, parameters, hosts, copies
        self._owner = copies.place if plan.ranks > 1 else 0
        self.repeats = copies.ranks // plan.ranks
        """Ranks that compute each update, so that no copy depends on another."""
        device, travels = local_part(parameters[0].parameter).device, _TRAVELS[plan.options.element_bytes]
        place_of = {parameter.name: place for place, parameter in enumerate(parameters)}
        pieces = [
            [overlap(held[place_of[matrix.matrix.fqn]], matrix.matrix, device) for held in parts]
            for matrix in plan.matrices
        ]
        self._like = like = torch.empty(0, device=device, dtype=travels)
        own = [piece[hosts.place] for piece in pieces]
        self._exchange = HostExchange(pieces, [matrix.matrix.shape for matrix in plan.matrices], hosts, like)
        self._publisher = UpdatePublisher(plan.buckets, [piece.elements for piece in own], copies, like)
        self._updates = RankUpdates(
            parameters, plan, rule, own, owner=self._owner, host=hosts.place, prepares_all=prepares_all,
            travels=travels,
        )  # fmt: skip
        self._groups: Sequence[MicroGroup] = plan.groups[self._owner]
        held = [place for group in self._groups for place in group[hosts.place]]
        self._slots = _slots([place for place in held if not plan.matrices[place].team], plan)
        shared = sorted(place for place in held if plan.matrices[place].team)
        self._shared = [(place, (teams or {})[plan.matrices[place].team]) for place in shared]

    @property
    def exchanges(self) -> tuple[UpdateExchange, UpdateExchange]:
        """Exchanges of hosts and of copies: a message over both reaches all holders."""
        return self._hosts, self._copies

    @property
    def traffic(self) -> dict[str, Traffic]:
        """Traffic since the start, among `hosts` and among `copies`."""
        return {"hosts": self._hosts.traffic, "copies": self._copies.traffic}

    @property
    def computed(self) -> int:
        """Updates that this rank computed since the start: one per matrix and step."""
        return self._updates.computed

    @property
    def compute_seconds(self) -> float | None:
        """Computing time of these updates; None: not known, as a GPU computes on while the process continues."""
        return self._updates.compute_seconds if self._like.device.type == "cpu" else None

    @property
    def owners(self) -> dict[Tensor, int]:
        """Parameters all of whose matrices have one owner, and that owner among the copies."""
        found: dict[str, set[int]] = {}
        for matrix in self.plan.matrices:
            found.setdefault(matrix.matrix.fqn, set()).add(matrix.owner)
        return {
            parameter.parameter: min(found[parameter.name])
            for parameter in self.parameters
            if len(found[parameter.name]) == 1
        }

    @property
    def published(self) -> tuple[frozenset[Tensor], ...]:
        """Parameters by bucket, of what `begin_step` returns."""
        if self.plan.ranks == 1:
            return ()
        of = {parameter.name: parameter.parameter for parameter in self.parameters}
        return tuple(
            frozenset(of[self.plan.matrices[place].matrix.fqn] for place in bucket.places)
            for bucket in self.plan.buckets
        )

    @property
    def own_loads(self) -> dict[str, float]:
        """Planned seconds of this rank's updates in a step, by kind of matrix: its name without numbers."""
        found: dict[str, float] = {}
        for matrix in self.plan.matrices:
            if self._owner in (matrix.team or (matrix.owner,)) and matrix.host == self._hosts.place:
                kind = re.sub(r"\d+", "*", " ".join(matrix.matrix.key).strip())
                found[kind] = found.get(kind, 0.0) + matrix.seconds
        return found

    def computed_by_all(self) -> int:
        """`computed` of all holders together; collective."""
        count = torch.tensor([self.computed], device=self._like.device)
        for exchange in self.exchanges:
            count = exchange.total(count)
        return int(count)

    def create_state(self, parameter: int, state_of: StateOf, *, without_memory: bool = False) -> None:
        """Create the state tensors of one of `parameters` that this rank keeps and that do not exist: all zero, or
        `without_memory` on the meta device."""
        self._updates.create_state(parameter, state_of, without_memory=without_memory)

    @torch.no_grad()
    def begin_step(self, inputs: UpdateStep) -> list[Send]:
        """Compute this rank's updates, and apply them if no other rank has a copy; collective.

        Returns:
            What sends and applies the rest, bucket by bucket, before the next step.
        """
        self._updates.begin(inputs)
        names = {self.parameters[place].name for place in inputs.active}
        self.wanted += self.repeats * sum(matrix.matrix.fqn in names for matrix in self.plan.matrices)
        owned = self._update_local() if self._hosts.ranks == 1 else self._update_assembled()
        self._updates.prepare_others()
        return self._publisher.publish(owned, self._updates.apply) if self.plan.ranks > 1 else []

    def _update_local(self) -> dict[int, Tensor]:
        """Updates of matrices that this rank holds whole: at most c_max is prepared at once. Only teams exchange
        something; their matrices come first, in one order on all ranks.

        Returns:
            What is to be published; the rest is applied.
        """
        owned: dict[int, Tensor] = {}
        for place, team in self._shared:
            update = self._updates.compute_shared(place, team)
            if update is not None:
                owned[place] = update
        for slot in self._slots:
            whole = {place: self._updates.part(place).view(self.plan.matrices[place].matrix.shape) for place in slot}
            self._receive_all(
                {place: tensor.flatten() for place, tensor in self._updates.compute(whole).items()}, owned
            )
        return owned

    def _update_assembled(self) -> dict[int, Tensor]:
        """Updates of matrices that are assembled here: while one group computes, its neighbours travel.

        Returns:
            As `_update_local`.
        """
        owned: dict[int, Tensor] = {}
        gathered = [self._gather(self._groups[0])] if self._groups else []
        scattered: list[tuple[MicroGroup, Pending]] = []
        for at, group in enumerate(self._groups):
            whole = self._exchange.assemble(group[self._hosts.place], gathered.pop().wait())
            if at + 1 < len(self._groups):
                gathered.append(self._gather(self._groups[at + 1]))
            updates = self._updates.compute(whole)
            del whole
            if scattered:  # had all of this group's computing to arrive: its memory is free for the next one
                self._receive(*scattered.pop(), owned)
            scattered.append((group, self._exchange.scatter(group, updates)))
            del updates
        if scattered:
            self._receive(*scattered.pop(), owned)
        return owned

    def _gather(self, group: MicroGroup) -> Pending:
        parts = {place: self._updates.part(place) for host in group for place in host}
        return self._exchange.gather(group, parts)

    def _receive(self, group: MicroGroup, scattered: Pending, owned: dict[int, Tensor]) -> None:
        self._receive_all(self._exchange.received(group, scattered.wait()), owned)

    def _receive_all(self, received: dict[int, Tensor], owned: dict[int, Tensor]) -> None:
        if self.plan.ranks > 1:
            owned.update(received)
            return
        for place, update in received.items():  # no other use: its memory is free for the next group
            self._updates.apply(place, update)


class HostExchange:
    """Gathers and scatters micro-groups; all hosts call in the same order. Matrices are named by place in the plan."""

    def __init__(
        self, pieces: Sequence[Sequence[MatrixPiece]], shapes: Shapes, hosts: UpdateExchange, like: Tensor
    ) -> None:
        """Args:
        pieces: Of each matrix, what each host holds of it: `pieces[place][host]`.
        shapes: Of the whole matrices.
        hosts: That the matrices are cut over.
        like: Any tensor of the device and dtype that travels.
        """
        self._pieces, self._shapes, self._hosts, self._like = pieces, shapes, hosts, like

    def own(self, place: int) -> MatrixPiece:
        """What this host holds of a matrix."""
        return self._pieces[place][self._hosts.place]

    def gather(self, group: MicroGroup, parts: Mapping[int, Tensor]) -> Pending:
        """Send `parts`, what this host holds of each matrix of the group; `assemble` takes what comes."""
        pieces = [[parts[place] for place in places] for places in group]
        mine = group[self._hosts.place]
        received = [sum(self._pieces[place][peer].elements for place in mine) for peer in range(len(group))]
        return self._hosts.all_to_all(pieces, self._like, received)

    def assemble(self, places: Sequence[int], received: Tensor) -> dict[int, Tensor]:
        """Whole matrices that this host computes, from the parts of all hosts."""
        found = {place: self._like.new_empty(self._shapes[place]) for place in places}
        start = 0
        for peer in range(self._hosts.ranks):
            for place in places:
                piece = self._pieces[place][peer]
                part = received[start : start + piece.elements]
                start += piece.elements
                if piece.elements:
                    found[place][piece.rows, piece.columns] = part.view(piece.shape)
        return found

    def scatter(self, group: MicroGroup, updates: Mapping[int, Tensor]) -> Pending:
        """Send each host what it holds of the `updates` that this one computed; `received` takes what comes."""
        mine = group[self._hosts.place]
        pieces = [[_flatten(updates[place], self._pieces[place][peer]) for place in mine] for peer in range(len(group))]
        received = [sum(self.own(place).elements for place in places) for places in group]
        return self._hosts.all_to_all(pieces, self._like, received)

    def received(self, group: MicroGroup, scattered: Tensor) -> dict[int, Tensor]:
        """What this host holds of each update of the group."""
        found, start = {}, 0
        for place in (place for places in group for place in places):
            found[place] = scattered[start : start + self.own(place).elements]
            start += self.own(place).elements
        return found


def _slots(places: Sequence[int], plan: OptimPlan) -> list[list[int]]:
    """Matrices of one shape, as many together as the plan says, or fewer where they are above c_max."""
    slots: dict[tuple[int, int], list[list[int]]] = {}
    for place in places:
        shape = plan.matrices[place].matrix.shape
        alike = slots.setdefault(shape, [[]])
        if len(alike[-1]) >= plan.options.together(shape, len(places)):
            alike.append([])
        alike[-1].append(place)
    return [slot for alike in slots.values() for slot in alike]


def _flatten(update: Tensor, piece: MatrixPiece) -> Tensor:
    """The part of an update that a host holds, in the one dimension in which it travels."""
    return update[piece.rows, piece.columns].flatten()

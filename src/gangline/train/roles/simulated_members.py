"""Members that are simulated in the gang: each has a share of the commit's data, and ranks train for them in turn."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Subset

from gangline.checkpoint.peers import Peers
from gangline.errors import CapacityError, ConfigError, IntegrityError
from gangline.federated.merge import refusal
from gangline.federated.protocol import Contribution, RoundAnswers, RoundCall, Spent
from gangline.federated.sum_vector import from_bytes, to_bytes
from gangline.spec.config.rules_federated import LEAST_SUM, SPLIT
from gangline.spec.federated import FederationPlan, RefusedReason
from gangline.train.loop.checkpointing import ExtraTensors
from gangline.train.loop.member_training import LocalMember, MemberTraining
from gangline.train.loop.private_training import RecordPrivacy
from gangline.train.loop.trainer import Trainer
from gangline.train.runtime.data_splits import open_split
from gangline.train.runtime.initialization import derived_seed

if TYPE_CHECKING:
    from gangline.federated.secure_sum import SecureSum

Answers = dict[str, Contribution | RefusedReason]


class GangMembers:
    """Members of `federated.simulate`; every rank makes every call and gets every answer."""

    def __init__(self, trainer: Trainer) -> None:
        """Collective.

        Raises:
            ConfigError: A member has no samples, or privacy is asked for and Opacus is missing.
        """
        context = trainer.context
        assert context.plan.federation is not None, "a federated plan"
        self._federation, self._context = context.plan.federation, context
        self._training, self._peers = MemberTraining(trainer), Peers(context.groups.control)
        roster, table = self._federation.roster, self._federation.table
        data, holdout = (
            open_split(context, trainer.task, each, seed=trainer.job.seed) for each in ("train", "holdout")
        )
        shares, held = (
            share_out(each, table.simulate.split, members=len(roster), seed=context.plan.seed)
            for each in (data, holdout)
        )
        require_samples(shares, table.simulate.split)
        self._own = [
            LocalMember(
                name=name, train=Subset(data, shares[number]), holdout=Subset(holdout, held[number]),
                privacy=RecordPrivacy.of(context.plan, samples=len(shares[number])),
            )
            for number, name in enumerate(roster)
            if number % context.plan.world_size == context.rank
        ]  # fmt: skip
        self._sums = self._make_sums() if table.secure_sum else {}
        if table.epsilon is not None:
            spent = _Spent([member.privacy for member in self._own if member.privacy is not None])
            if context.generation:
                spent.restore({})  # unless a checkpoint says more
            trainer.engine.saves.add_extra(spent)

    def ask(self, call: RoundCall) -> RoundAnswers:
        """Train for all members, or judge; see `RoundMembers`."""
        own: Answers = {member.name: self._answer(member, call) for member in self._own}
        with self._context.clock.during("wait"):
            down = sum(weight.nbytes for weight in call.weights.values()) * len(self._federation.roster)
            spent = self._spent()
            if self._federation.table.secure_sum:
                return replace(self._sum(own, call, down), spent=spent)
            every = self._gather(own, call)
        kept = tuple(each for each in every.values() if isinstance(each, Contribution))
        refused = tuple((name, each) for name, each in every.items() if not isinstance(each, Contribution))
        up = sum(array.nbytes for contribution in kept for array in (contribution.change or {}).values())
        return RoundAnswers(contributions=kept, refused=refused, bytes_up=up, bytes_down=down, spent=spent)

    def close(self) -> None:
        """Nothing is held."""

    def _spent(self) -> Spent | None:
        """Most that a member has spent so far; None: the run asks for no privacy."""
        if self._federation.table.epsilon is None:
            return None
        unlike = {
            (privacy.noise, privacy.trainings): privacy
            for privacy in (member.privacy for member in self._own)
            if privacy
        }
        own = [privacy.spent() for privacy in unlike.values()]  # a tenth of a second each
        rows = self._peers.gather([[each.epsilon, each.accountant] for each in own])
        return Spent.most(Spent(epsilon=epsilon, accountant=name) for row in rows for epsilon, name in row)

    def _answer(self, member: LocalMember, call: RoundCall) -> Contribution | RefusedReason:
        try:
            answer = self._training.train(member, call) if call.trains else self._training.judge(member, call)
        except CapacityError:
            return "budget"
        return refusal(answer, call.weights, self._federation.roster) or answer

    def _gather(self, own: Answers, call: RoundCall) -> Answers:
        """Answers of all members on all ranks: their changes as one tensor, the rest as JSON data."""
        sizes = [weight.size for weight in call.weights.values()] if call.trains else []
        turns = -(-len(self._federation.roster) // self._peers.size)
        changes = torch.zeros(turns, sum(sizes))
        for row, answer in zip(changes, own.values(), strict=False):
            if isinstance(answer, Contribution) and answer.change is not None:
                row.copy_(torch.from_numpy(np.concatenate([answer.change[name].ravel() for name in call.weights])))
        every = [changes]
        if self._peers.size > 1:
            every = [torch.empty_like(changes) for _ in range(self._peers.size)]
            dist.all_gather(every, changes, group=self._context.groups.control)
        found: Answers = {}
        for rows, said in zip(every, self._peers.gather([_said(*each) for each in own.items()]), strict=True):
            for row, each in zip(rows, said, strict=False):
                found[each["name"]] = each["refused"] or _heard(each, row, call, sizes)
        return dict(sorted(found.items()))

    def _make_sums(self) -> "dict[str, SecureSum]":
        from gangline.federated.secure_sum import (
            SecureSum,  # cryptography, which locks of few lines have
            identity_of,
            make_identities,
        )

        made = make_identities(list(self._federation.roster)) if self._context.rank == 0 else {}
        texts: Mapping[str, list[str]] = self._peers.broadcast(made)
        return {member.name: SecureSum(identity_of(texts[member.name]), least=LEAST_SUM) for member in self._own}

    def _sum(self, own: Answers, call: RoundCall, down: int) -> RoundAnswers:
        """The answers as one sum, of which no rank sees a part without its masks."""
        from gangline.federated.secure_sum import Occasion, add

        federation, roster = self._federation, len(self._federation.roster)
        occasion = Occasion(
            run=self._context.plan.run, round=call.number, attempt=call.attempt, code="simulated",
            roster=federation.roster,
        )  # fmt: skip
        said = self._peers.gather([sorted(each.metrics) for each in own.values() if isinstance(each, Contribution)])
        names = sorted({name for rows in said for row in rows for name in row})  # a vector has a place for each
        vectors = {name: _vector(each, names, federation) for name, each in own.items()}
        refused = self._peers.gather([[name, vector] for name, vector in vectors.items() if isinstance(vector, str)])
        plain = {name: vector for name, vector in vectors.items() if isinstance(vector, bytes)}
        keys = self._gather_bytes({name: self._sums[name].begin(occasion) for name in plain})
        given, count = list(keys.values()), call.num_numbers
        answers = RoundAnswers(
            contributions=(), refused=tuple((name, reason) for rows in refused for name, reason in rows),
            bytes_up=sum(map(len, given)), bytes_down=down + len(given) * sum(map(len, given)),
        )  # fmt: skip
        try:
            masked = self._gather_bytes({
                name: self._sums[name].mask(given, vector, num_numbers=count) for name, vector in plain.items()
            })  # fmt: skip
        except IntegrityError:  # too few members are left, and every rank has the same list
            return answers
        together = from_bytes(
            add(list(masked.values()), num_numbers=count), list(masked), federation.table, roster=roster,
            weights=call.weights if call.trains else None, names=names,
        )  # fmt: skip
        return replace(answers, contributions=(together,), bytes_up=answers.bytes_up + sum(map(len, masked.values())))

    def _gather_bytes(self, own: Mapping[str, bytes]) -> dict[str, bytes]:
        said = self._peers.gather({name: base64.b64encode(each).decode() for name, each in own.items()})
        return {name: base64.b64decode(text) for rows in said for name, text in sorted(rows.items())}


class _Spent(ExtraTensors):
    """Trainings that have spent privacy, saved with each round: a restart counts the one that was under way, too."""

    def __init__(self, members: Sequence[RecordPrivacy]) -> None:
        self._members, self._count = members, torch.zeros((), dtype=torch.int64)

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The count, equal for all members."""
        self._count.fill_(max((member.trainings for member in self._members), default=int(self._count)))
        return {"federation/trainings": self._count}

    def restore(self, own: Mapping[str, torch.Tensor]) -> None:
        """Continue after the saved trainings and the one that may have begun since."""
        del own
        for member in self._members:
            member.resume(int(self._count) + 1)


def _vector(
    answer: Contribution | RefusedReason, names: Sequence[str], federation: FederationPlan
) -> bytes | RefusedReason:
    """Numbers of one answer before they are masked, or why there are none."""
    if not isinstance(answer, Contribution):
        return answer
    metrics = {name: answer.metrics.get(name, (0.0, 0.0)) for name in names}
    try:
        return to_bytes(replace(answer, metrics=metrics), federation.table, roster=len(federation.roster))
    except IntegrityError:
        return "not_finite"


def _said(name: str, answer: Contribution | RefusedReason) -> dict[str, Any]:
    if not isinstance(answer, Contribution):
        return {"name": name, "refused": answer}
    metrics = {metric: list(pair) for metric, pair in answer.metrics.items()}
    return {"name": name, "refused": None, "weight": answer.weight, "loss": answer.loss, "metrics": metrics}


def _heard(said: Mapping[str, Any], row: torch.Tensor, call: RoundCall, sizes: Sequence[int]) -> Contribution:
    parts = torch.split(row, list(sizes)) if call.trains else ()
    change = {
        name: part.numpy().reshape(call.weights[name].shape)
        for name, part in zip(call.weights, parts, strict=call.trains)
        if call.trains
    }
    metrics = {name: (total, weight) for name, (total, weight) in said["metrics"].items()}
    return Contribution(
        members=(said["name"],), weight=said["weight"], change=change or None, loss=said["loss"], metrics=metrics
    )


def share_out(data: Any, split: str, *, members: int, seed: int) -> list[list[int]]:
    """Numbers of the samples of each member, sorted; each sample has one member.

    With `dirichlet:A` the samples of a label are shared out by proportions from a Dirichlet distribution, equal for
    equal seeds: the two splits of a data set get the same proportions.

    Raises:
        ConfigError: Samples have no such column, or there are not as many values as members.
    """
    match = SPLIT.fullmatch(split)
    assert match is not None, "federated_rules has checked it"
    draws = np.random.default_rng(derived_seed(seed, "members"))
    if match["column"]:
        return _by_value(_column(data, match["column"]), split, members)
    if match["alpha"] is None:
        return [sorted(part.tolist()) for part in np.array_split(draws.permutation(len(data)), members)]
    return _by_label(_column(data, None), float(match["alpha"]), members, draws)


def require_samples(shares: Sequence[Sequence[int]], split: str) -> None:
    """
    Raises:
        ConfigError: A member has nothing to train on.
    """
    if empty := [number for number, share in enumerate(shares, start=1) if not share]:
        raise ConfigError(
            f'federated.simulate.split: wanted samples for each of {len(shares)} members, "{split}" leaves '
            f"{len(empty)} without any; fewer members, a larger A or iid works"
        )


def _by_value(values: list[Any], split: str, members: int) -> list[list[int]]:
    distinct = sorted(set(values), key=str)
    if len(distinct) != members:
        raise ConfigError(
            f'federated.simulate.members: wanted one for each value of "{split}", found {members} members and '
            f"{len(distinct)} values; members = {len(distinct)} works"
        )
    return [[index for index, value in enumerate(values) if value == each] for each in distinct]


def _by_label(labels: list[Any], alpha: float, members: int, draws: np.random.Generator) -> list[list[int]]:
    shares: list[list[int]] = [[] for _ in range(members)]
    for label in sorted(set(labels), key=str):
        own = [index for index, each in enumerate(labels) if each == label]
        cuts = np.rint(np.cumsum(draws.dirichlet([alpha] * members)) * len(own)).astype(int)[:-1]
        for number, part in enumerate(np.split(np.array(own), cuts)):
            shares[number] += part.tolist()
    return [sorted(share) for share in shares]


def _column(data: Any, name: str | None) -> list[Any]:
    """Values of one column; of the only one that holds a whole number if `name` is None."""
    first = data[0]
    if name is None:
        labels = [key for key, value in first.items() if isinstance(_plain(value), int)]
        if len(labels) != 1:
            raise ConfigError(
                "federated.simulate.split: wanted one column of whole numbers as the label of a sample, found "
                f"{labels or 'none'} among {sorted(first)}; iid and column:NAME need no label"
            )
        name = labels[0]
    if name not in first:
        raise ConfigError(f"federated.simulate.split: wanted a column {name!r}, samples have {sorted(first)}")
    return [_plain(data[index][name]) for index in range(len(data))]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value

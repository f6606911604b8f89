"""`[federated]` of a line as frozen data, and what a plan says of a federation: data stay with its members."""

from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Literal

from gangline.spec.bounds import POSITIVE, Bound

ServerRule = Literal["sgd", "adam"]
Merge = Literal["mean", "median", "trimmed"]
RefusedReason = Literal[
    "unknown_member", "old_round", "second_answer", "shape", "size", "not_finite", "signature", "code", "budget",
    "data", "class_list", "lost", "error",
]  # fmt: skip
"""Why an answer or a member does not count; each is counted by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedMembers:
    """Members that are simulated where the site names no federation."""

    members: Annotated[int, Bound(most=1000)] = 5
    """Number of members."""
    split: str = "iid"
    """How the commit's data are shared out: `iid`, `dirichlet:A` (by label, the smaller A the more unlike), or
    `column:NAME` (one member for each value of a column)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FederatedTable:
    """Training in rounds over members' data, as `[federated]`; `[optimizer]` and `train.schedule` are the members'."""

    local_steps: Annotated[int, Bound(least=1)]
    """Optimizer updates of a member in a round; there are `train.steps / local_steps` rounds."""
    quorum: int
    """Fewest answers that merge."""
    round_seconds: Annotated[float, POSITIVE] = 3600.0
    """Time after which a round merges what a quorum sent, or is lost."""
    server: ServerRule = "sgd"
    """Rule of torch.optim that takes the mean change for a gradient."""
    server_lr: Annotated[float, POSITIVE] = 1.0
    """Learning rate of that rule."""
    server_momentum: Annotated[float, Bound(least=0, below=1, words="in [0, 1)", works="0.9 is usual")] = 0.0
    """Momentum of sgd."""
    merge: Merge = "mean"
    """How changes are combined; trimmed leaves out a tenth at each end."""
    prox: Annotated[
        float, Bound(least=0, below=inf, words="a number of 0 or more", works="0 is federated averaging")
    ] = 0.0
    """FedProx: half of it times the squared distance from the round's weights is added to a member's loss."""
    clip_norm: Annotated[float | None, POSITIVE] = None
    """Largest norm of a member's change, all tensors together; none: any."""
    most_samples: Annotated[int | None, Bound(least=1)] = None
    """A member weighs as its samples, at most as this many; none: all weigh equally."""
    secure_sum: bool = False
    """The coordinator sees sums of changes alone, never one of them."""
    epsilon: Annotated[float | None, POSITIVE] = None
    """Privacy budget of the run for each record of each member; none: no privacy is asked for."""
    delta: Annotated[
        float, Bound(above=0, below=1, words="a probability in (0, 1)", works="1e-5 is less than one record of 100,000")
    ] = 1e-5
    """Probability with which the privacy of a record may fail."""
    spare_rounds: Annotated[int | None, Bound(least=0)] = None
    """Lost rounds that the privacy budget covers, for each training spends it; none: a tenth of the rounds."""
    clip_grad: Annotated[float | None, POSITIVE] = None
    """Norm to which the gradient of each record is clipped; wanted by epsilon."""
    evaluate: Literal["members", "coordinator"] = "members"
    """Whose held-out data judge the model."""
    simulate: SimulatedMembers = SimulatedMembers()


@dataclass(frozen=True, kw_only=True, slots=True)
class FederationResult:
    """What a federation did, as the record keeps it; never what one member sent, nor its loss."""

    engine: str = "simulated"
    """Carrier with its version, `nvflare 2.9.0`, each one that carried rounds; or `simulated`."""
    roster: int
    """Members that might take part."""
    answered: tuple[float, ...] = ()
    """Mean number of members that answered, in each quarter of the rounds."""
    rounds: int
    """Rounds of the plan."""
    merged: int
    lost: int
    """Attempts that merged nothing, for fewer answered than the quorum."""
    repeated: int = 0
    """Rounds that were merged again after a restart."""
    refused: dict[str, int] = field(default_factory=dict)
    """Answers that did not count, by reason."""
    secure_sum: bool = False
    epsilon: float | None = None
    """Budget that the line asked for; None: none."""
    delta: float | None = None
    spent: float | None = None
    """Most that a member spent, by its accountant; None: unknown, as under a secure sum of real members, where at most
    `epsilon` was reserved by each; or nothing was asked for."""
    accountant: str | None = None
    """Software that says so, with its version: `opacus 1.6.0`; None: no member says."""
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FederationPlan:
    """What the gang of a federated run obeys."""

    table: FederatedTable
    roster: tuple[str, ...]
    """Names of the members that may take part, sorted."""
    simulated: bool
    """Members are simulated in this gang, on shares of the commit's data."""

    @property
    def is_data_of_members(self) -> bool:
        """Whether no sample is on this side: real members train, and judge the model on their own."""
        return not self.simulated and self.table.evaluate == "members"

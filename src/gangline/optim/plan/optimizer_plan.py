"""The plan of a matrix optimizer as data: who computes which update, in which group, and what it should take. Pure."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from gangline.errors import ConfigError
from gangline.optim.plan.costs import DeviceCurve, Shape
from gangline.optim.plan.geometry import BucketPlan, Geometry, GeometryChoice, SyncRate
from gangline.optim.plan.groups import HostExchangeRate, MicroGroup
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.optim.plan.owners import balance_ratio
from gangline.spec.codec import Document, digest
from gangline.spec.config.matrix_rule import REPEATS_ALONE
from gangline.units import Bytes, format_bytes

BUCKET_ELEMENTS = 400_000_000
"""Elements of a bucket, where neither the options nor blocks decide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """What a plan is made for. The rates are assumptions until measured ones replace them.

    Raises:
        ConfigError: An option is out of its range.
    """

    alpha: float = 1.0
    """Weight of balanced compute (1) against cheap synchronization (0)."""
    bucket_elements: int | None = None
    """A bucket closes once it has as many, on each rank; None: `BUCKET_ELEMENTS`, or a bucket for each block of the
    model where updates travel during the forward pass."""
    owner_memory_bytes: int = 0
    """Limit of the state that a rank keeps as owner; 0: no limit."""
    c_max_bytes: int = 1 << 30
    """Limit of the matrices that a host assembles in one micro-group."""
    geometry: GeometryChoice = "auto"
    oversize: Literal["own_slot", "error"] = "own_slot"
    """What becomes of a matrix above `c_max_bytes`."""
    team: Literal["off", "auto"] = "off"
    """`auto`: matrices too large for balance are shared by ranks; their updates are not bitwise those of one owner."""
    refresh: Literal["staggered", "together"] = "staggered"
    """When roots and bases are refreshed: spread over the steps, by owner, or all in one, whatever the plan."""
    batch: int = 1
    """Matrices of one shape that are updated together, at most; above 1 their bits may depend on the plan."""
    copies: Literal["share", "repeat"] = "share"
    """What ranks with copies of a matrix do: one of them computes its update, or each does and keeps all state."""
    overlap: Literal["off", "forward"] = "off"
    """`forward`: updates travel from owners to copies during the next forward pass, which waits for those it needs."""
    element_bytes: int = 4
    """Bytes of an element of the gradients and updates that travel."""
    device: DeviceCurve = DeviceCurve()
    exchange: HostExchangeRate = HostExchangeRate()
    sync: SyncRate = SyncRate()

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"optimizer.alpha is from 0 to 1, found {self.alpha}")
        if self.batch < 1 or self.element_bytes not in (2, 4, 8):
            raise ConfigError(
                f"optimizer.batch is 1 or more, element_bytes 2, 4 or 8; found {self.batch}, {self.element_bytes}"
            )
        if self.copies == "repeat" and (self.overlap == "forward" or self.team == "auto"):
            raise ConfigError(f"optimizer.copies: {REPEATS_ALONE}")
        bucket = 1 if self.bucket_elements is None else self.bucket_elements
        if bucket < 1 or self.c_max_bytes < 1 or self.owner_memory_bytes < 0:
            raise ConfigError(
                f"optimizer.bucket_elements and c_max_bytes are 1 or more, owner_memory_bytes 0 or more, found "
                f"{self.bucket_elements}, {format_bytes(self.c_max_bytes)} and {self.owner_memory_bytes}"
            )

    def together(self, shape: Shape, count: int) -> int:
        """Matrices of `shape` that a rank which has `count` of them updates at a time, 1 or more."""
        fit = self.c_max_bytes // (self.element_bytes * prod(shape))
        return max(1, min(self.batch, fit, count))

    @property
    def most_elements(self) -> int | None:
        """Elements at which a bucket closes; None: it is a block of the model."""
        if self.bucket_elements is None and self.overlap == "forward":
            return None
        return self.bucket_elements or BUCKET_ELEMENTS

    @property
    def memory(self) -> Bytes | None:
        """Limit of owner state, None: there is none."""
        return Bytes(self.owner_memory_bytes) if self.owner_memory_bytes else None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedMatrix:
    """One matrix and where it is updated."""

    matrix: LogicalMatrix
    seconds: float
    """Predicted, of a mean step, by one rank; by each of its team, where there is one."""
    refresh_seconds: float = 0.0
    """Duration of one refresh of its roots or basis; its share is in `seconds`."""
    owner: int
    """Rank among those that hold the same parameters; the leader, where a team shares it."""
    host: int = 0
    """Rank among those that the matrix is cut over."""
    group: int = 0
    """Micro-group of its owner."""
    phase: int = 0
    """Its root or basis is refreshed in steps that leave this rest when divided by `refresh_every`."""
    team: tuple[int, ...] = ()
    """Owners that share it; empty: it has one."""
    is_oversize: bool = False
    """Larger than `c_max_bytes`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimPlan(Document):
    """A pure function of names, shapes, storage, degrees, rule and options: ranks compare its hash, not its making."""

    rule: str
    dtype: str
    """Type of its products."""
    refresh_every: int
    ranks: int
    """Ranks that hold the same parameters: owners."""
    hosts: int
    """Ranks that every matrix is cut over."""
    matrices: tuple[PlannedMatrix, ...]
    """Matrices in model order."""
    geometry: Geometry
    buckets: tuple[BucketPlan, ...]
    groups: tuple[tuple[MicroGroup, ...], ...]
    """Groups of each owner, in the order of its pipeline; places in `matrices`."""
    loads: tuple[float, ...]
    """Seconds of updates of each owner, before hosts share them."""
    bound: float
    """No map has a smaller largest load; with teams, no other choice of their members."""
    price: float
    """Modelled synchronization over that of an ideal ring."""
    owner_state_bytes: tuple[int, ...]
    """State of each owner, on all of its hosts together."""
    options: PlanOptions

    @property
    def plan_hash(self) -> str:
        """SHA-256 of the canonical JSON: equal on all ranks, or the step would hang."""
        return digest(self)

    @property
    def ratio(self) -> float:
        """Largest load of an owner over the mean."""
        return balance_ratio(self.loads)

    @property
    def bound_ratio(self) -> float:
        """What no map is below."""
        return self.bound * len(self.loads) / sum(self.loads)

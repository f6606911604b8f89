"""The plan of a matrix optimizer as data: who computes which update, in which group, and what it should take. Pure."""

from dataclasses import asdict, dataclass
from math import prod
from typing import Self

from gangline.optim.plan.costs import DeviceCurve, Shape
from gangline.optim.plan.geometry import BucketPlan, Geometry, SyncRate
from gangline.optim.plan.groups import HostExchangeRate, MicroGroup
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.optim.plan.owners import balance_ratio
from gangline.spec.codec import Document, digest
from gangline.spec.config.matrix_options import MatrixPlanOptions
from gangline.units import Bytes

BUCKET_ELEMENTS = 400_000_000
"""Elements of a bucket, where neither the options nor blocks decide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions(MatrixPlanOptions):
    """What a plan is made for. The rates are assumptions until measured ones replace them."""

    device: DeviceCurve = DeviceCurve()
    exchange: HostExchangeRate = HostExchangeRate()
    sync: SyncRate = SyncRate()

    @classmethod
    def of(cls, options: MatrixPlanOptions, device: DeviceCurve | None = None) -> Self:
        """Options of a line, on ranks that compute as `device` says."""
        return cls(**asdict(options), device=device or DeviceCurve())

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

"""What one kind of device was seen to do: data that outlive the measurement, and that a forecast is made of."""

from dataclasses import dataclass
from typing import Literal

from gangline.spec.codec import Document, digest
from gangline.spec.plan import Device, Precision

Exchange = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """Matrix products of one size: rows x inner by inner x columns."""

    rows: int
    inner: int
    columns: int
    flops_per_second: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Attended:
    """Fused attention of one size, forward and backward."""

    queries: int
    keys: int
    width: int
    is_causal: bool
    flops_per_second: float
    """The masked half of a causal one left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """One operation that computes little: a mean over a sum, an activation, its gradient and a transposed copy."""

    size_bytes: int
    """Read and written."""
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One exchange between all ranks that were measured; of `send`, from one to another."""

    kind: Exchange
    size_bytes: int
    """Of the whole tensor, on a rank that has all of it."""
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates(Document):
    """Of one device, while `ranks` of them on one machine do the same at the same time."""

    schema: int = 1
    device: Device
    device_name: str
    """As the driver calls a GPU, or the system its processor."""
    torch: str
    threads: int
    """Of one rank."""
    cores: int
    """Of the machine."""
    ranks: int
    precision: Precision
    backend: str
    """Of the messages."""
    memory_bytes_per_second: float
    """Read and written by an operation in place on what no cache holds."""
    products: tuple[Product, ...] = ()
    moves: tuple[Move, ...] = ()
    """By rising size."""
    attention: tuple[Attended, ...] = ()
    messages: tuple[Message, ...] = ()
    """By kind, then by rising size; empty where one rank was alone."""

    @property
    def digest(self) -> str:
        """Of what they are about, not of what was found: equal for two measurements of the same device."""
        about = (self.device, self.device_name, self.torch, self.threads, self.cores, self.ranks, self.precision)
        return digest(list(about))

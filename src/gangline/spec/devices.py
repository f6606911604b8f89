"""Devices: the nodes that a probe or a launcher reported, measured rates of one kind of device, and names of GPUs.

A plan has the name that the driver gave, that a node's label `nvidia.com/gpu.product` has (dashes for spaces), or that
the site's file calls its GPUs by.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from gangline.spec.codec import Document, digest
from gangline.spec.plan import Device, Precision


@dataclass(frozen=True, kw_only=True, slots=True)
class Devices:
    """Equal accelerators of one node."""

    kind: Device
    name: str = ""
    """Name that the driver gives them; `[gpu.NAME]` of the site is looked up by it."""
    memory_bytes: int | None = None
    """Memory of one device."""
    count: int = 1
    """Devices on each node."""
    has_bf16: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory(Document):
    """Equal nodes: unlike ones are planned for by their smallest."""

    num_nodes: int = 1
    cores: int = 1
    """Cores of one node."""
    memory_bytes: int | None = None
    """Memory of one node; None: not known."""
    devices: tuple[Devices, ...] = ()
    origin: str = "unknown"
    """Who said so: `this machine`, `kubernetes`, `site.toml`."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of these nodes and of no others, where a cluster also has nodes with another kind of GPU."""
    others: tuple["Inventory", ...] = ()
    """Nodes with other kinds of GPU; of what a gang takes, those of its second kind."""

    one_kind_because: str = ""
    """Why no gang has nodes of two kinds; empty: it may."""

    @property
    def kinds(self) -> tuple["Inventory", ...]:
        """These nodes alone, then those of each other kind."""
        others = (replace(other, one_kind_because=self.one_kind_because) for other in self.others)
        return (replace(self, others=()), *others)

    @property
    def device_names(self) -> str:
        """`h100`, `h100 and a100`; empty: there are no GPUs, or their names are not known."""
        return " and ".join(filter(None, (kind.gpus.name for kind in self.kinds if kind.gpus)))

    @property
    def as_smallest(self) -> "Inventory":
        """All nodes, as if each had what the one with the least memory has."""
        least = min(self.kinds, key=lambda kind: kind.gpus.memory_bytes or 0 if kind.gpus else 0)
        return replace(least, num_nodes=sum(kind.num_nodes for kind in self.kinds))

    @property
    def gpus(self) -> Devices | None:
        """The most numerous kind of GPU, the larger memory first among equals; None: there is none."""
        devices = [device for device in self.devices if device.kind == "cuda" and device.count > 0]
        return max(devices, key=lambda each: (each.count, each.memory_bytes or 0, each.name), default=None)

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical JSON."""
        return digest(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class FreeServers:
    """Nodes of an inventory on which a gang could start this minute."""

    free: int
    holders: tuple[str, ...] = ()
    """Who holds the others, the largest first: gangs by name, other pods by owner."""


Exchange = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MatmulRate:
    """Matrix products of one size: rows x inner by inner x columns."""

    rows: int
    inner: int
    columns: int
    flops_per_second: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionRate:
    """Fused attention of one size, forward and backward."""

    queries: int
    keys: int
    width: int
    is_causal: bool
    flops_per_second: float
    """The masked half of a causal one left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MoveRate:
    """One operation that computes little: a mean over a sum, an activation, its gradient and a transposed copy."""

    size_bytes: int
    """Read and written."""
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ExchangeRate:
    """One exchange between all ranks that were measured; of `send`, from one to another."""

    kind: Exchange
    size_bytes: int
    """Size of the whole tensor, on a rank that has all of it."""
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates(Document):
    """Rates of one device, while `ranks` of them on one machine do the same at the same time."""

    schema: int = 1
    device: Device
    device_name: str
    """Name that the driver gives a GPU, or the system its processor."""
    torch: str
    threads: int
    """Threads of one rank."""
    cores: int
    """Cores of the machine."""
    ranks: int
    precision: Precision
    backend: str
    """Backend of the messages."""
    memory_bytes_per_second: float
    """Read and written by an operation in place on what no cache holds."""
    products: tuple[MatmulRate, ...] = ()
    moves: tuple[MoveRate, ...] = ()
    """Rates of moves, by rising size."""
    attention: tuple[AttentionRate, ...] = ()
    messages: tuple[ExchangeRate, ...] = ()
    """Rates of messages by kind, then by rising size; empty where one rank was alone."""

    @property
    def digest(self) -> str:
        """Digest of what they are about, not of what was found: equal for two measurements of the same device."""
        about = (self.device, self.device_name, self.torch, self.threads, self.cores, self.ranks, self.precision)
        return digest(list(about))


_KINDS_OF_WORDS = (
    re.compile(r"(?:rtx|gtx)?((?:gb|gh|mi|[abhlktvp])\d{1,4}[a-z]?|\d{4})"),
    re.compile(r"(?!480gb)(\d{1,3}gb)"),  # 480 are those of a GH200's processor
    re.compile(r"(pcie|sxm|nvl)\d?"),
)
"""Model, memory, form: words by which names differ. `gold` says none of them."""


def other_kinds(planned: str, found: Iterable[str]) -> tuple[str, ...]:
    """Those of `found`, as drivers call them, that are certainly no GPU that `planned` means.

    They are another model, or the same one with another memory or form, as far as both names say it.
    """
    return tuple(each for each in found if any(_differ(kind, planned, each) for kind in _KINDS_OF_WORDS))


def _differ(kind: re.Pattern[str], one: str, other: str) -> bool:
    first, second = _words(kind, one), _words(kind, other)
    return bool(first and second) and not first & second


def _words(kind: re.Pattern[str], name: str) -> set[str]:
    matches = (kind.fullmatch(word) for word in re.split(r"[\s_-]+", name.lower()))
    return {match[1] for match in matches if match}

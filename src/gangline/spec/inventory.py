"""What there is to train on, as a probe or a launcher reported it: pure numbers the planner reads."""

from dataclasses import dataclass

from gangline.spec.codec import Document, digest
from gangline.spec.plan import Device


@dataclass(frozen=True, kw_only=True, slots=True)
class Devices:
    """Equal accelerators of one node."""

    kind: Device
    name: str = ""
    """As the driver calls them; `[gpu.NAME]` of the site is looked up by it."""
    memory_bytes: int | None = None
    """Of one device."""
    count: int = 1
    """On each node."""
    has_bf16: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory(Document):
    """Equal nodes: unlike ones are planned for by their smallest."""

    num_nodes: int = 1
    cores: int = 1
    """Of one node."""
    memory_bytes: int | None = None
    """Of one node; None: not known."""
    devices: tuple[Devices, ...] = ()
    origin: str = "unknown"
    """Who said so: `this machine`, `kubernetes`, `site.toml`."""

    @property
    def gpus(self) -> Devices | None:
        """The most numerous kind of GPU, the larger memory first among equals; None: there is none."""
        found = [each for each in self.devices if each.kind == "cuda" and each.count > 0]
        return max(found, key=lambda each: (each.count, each.memory_bytes or 0, each.name), default=None)

    @property
    def digest(self) -> str:
        return digest(self)

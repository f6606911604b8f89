"""What is known about a model before it runs, and what earlier runs measured; None is "not known yet"."""

from dataclasses import dataclass

from gangline.spec.mesh import Mesh
from gangline.spec.plan import Device, Precision, Strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelProfile:
    parameters: int
    parameter_bytes: int | None = None
    """As the model declares them; None: 4 bytes each."""
    largest_block_parameters: int | None = None
    """Gathered whole by FSDP while it is computed."""
    activation_bytes_per_sample: int | None = None
    """Kept from forward to backward, by one sample."""
    origin: str = "unknown"
    """`inspected`, `formula`, `traced`, `record <run>`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Median step of one earlier run of this project."""

    run: str
    model: str = ""
    """Digest of its table `model`; empty: the caller chose runs of the same model."""
    strategy: Strategy
    mesh: Mesh
    device: Device
    device_name: str = ""
    precision: Precision
    global_batch: int
    micro_batch: int
    step_seconds: float
    peak_memory_bytes: int | None = None

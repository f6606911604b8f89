"""Model profile: size and trace of a model before it runs, and measurements of earlier runs; None means unknown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gangline.spec.forecast import Forecast
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Device, Precision
from gangline.spec.strategies import Strategy
from gangline.spec.transformer import Transformer


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """Equal blocks in a row, or what no block holds; figures of one of them and one sample, forward and backward."""

    name: str
    """Name of the first; empty: all that lies outside the blocks, the loss included."""
    count: int = 1
    parameters: int
    flops: float
    saved_bytes: float
    """Kept from forward to backward, parameters left out."""
    boundary_bytes: float
    """What it hands to the next."""
    expert_parameters: int = 0
    """Those of `parameters` that expert parallelism deals out."""
    expert_entries: float = 0.0
    """Numbers in the rows that its experts take, each as often as it has experts to go to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrices:
    """Products of one size: rows x inner by inner x columns."""

    rows: int
    inner: int
    columns: int
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """Fused attention of one size, forward and backward; scores are never whole."""

    heads: int
    """Heads of all samples together."""
    queries: int
    keys: int
    width: int
    """Width of a head."""
    is_causal: bool
    count: int = 1

    @property
    def flops(self) -> float:
        """Operations of one, two products forward and five backward, the masked half of a causal one left out."""
        whole = 14.0 * self.heads * self.queries * self.keys * self.width
        return whole / 2 if self.is_causal else whole

    @property
    def counted_flops(self) -> float:
        """Operations of one, as `Trace.flops_per_sample` has them: a causal mask is not taken off."""
        return 2 * self.flops if self.is_causal else self.flops


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """Forward and backward, followed operation by operation without computing anything, on one rank."""

    precision: Precision
    flops_per_sample: float
    """Operations of matrix products, convolutions and attention; a causal mask is not taken off."""
    moved_bytes_per_sample: float
    """Read and written by everything else."""
    moves: int = 0
    """Operations that do so, whatever the number of samples."""
    activation_bytes_per_sample: int
    """Growth of the peak by one more sample; the gradients of parameters are left out."""
    activation_bytes_fixed: int = 0
    """The part of the peak that does not depend on the number of samples."""
    units: tuple[Unit, ...] = ()
    samples: int
    """Samples that `matrices` and `attention` are about."""
    matrices: tuple[Matrices, ...] = ()
    attention: tuple[Attention, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterShape:
    """Parameters of one shape, as matrices: what follows the first dimension counts as columns."""

    rows: int
    columns: int
    count: int


ModuleKind = Literal["embedding", "norm", "other"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedParameter:
    """One parameter of a model."""

    name: str
    """Fully qualified, without the parts that wrappers add."""
    shape: tuple[int, ...]
    """Whole, whatever a rank holds."""
    module: ModuleKind = "other"
    """Kind of the module that has it; of several the first of these kinds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelinePieces:
    """What a pipeline cuts a model into, with the parameters of each piece."""

    blocks: tuple[str, ...]
    """Paths of the blocks in order."""
    block_parameters: tuple[int, ...]
    embed: tuple[str, ...]
    """Paths outside the blocks that the first stage has."""
    embed_parameters: int
    head: tuple[str, ...]
    """Paths outside the blocks that the last stage has."""
    head_parameters: int

    def __post_init__(self) -> None:
        if len(self.blocks) != len(self.block_parameters):
            raise ValueError(f"{len(self.blocks)} blocks with parameters of {len(self.block_parameters)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixWork:
    """What a matrix rule computes, keeps and sends in a mean step, over the whole model."""

    rule: str
    parameters: int
    """Parameters in its matrices."""
    flops: float
    largest_flops: float
    """Operations of the largest matrix, which one rank computes."""
    sharded_bytes: int
    """State in the layout of parameters."""
    owner_bytes: int
    """State that is kept for each matrix on one rank."""
    largest_owner_bytes: int = 0
    """The largest such state of one matrix."""
    batch: int = 1
    """Matrices that a rank updates together, at most."""
    largest_elements: int = 0
    """Elements of the largest matrix."""
    c_max_bytes: int = 1 << 30
    """Bound on the matrices that a host assembles at a time; one that is larger goes alone."""
    element_bytes: int = 4
    """Bytes of an element that travels."""
    repeats: bool = False
    """Each copy of a matrix computes all updates itself and keeps all state."""
    blocks: int = 0
    """Blocks that hold the matrices, by their names; 0: no numbered list does."""
    bucket_elements: int | None = None
    """Elements of updates that owners send at a time, on each rank; None: those of a block."""
    overlaps: bool = False
    """Owners send their updates during the next forward pass."""
    seconds: float | None = None
    """Seconds of a measured table; None: `flops` at the rate of the device."""
    largest_seconds: float | None = None
    """Seconds of the largest matrix."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelProfile:
    """Size of a model, as far as it was measured."""

    parameters: int
    tensors: int = 0
    """Tensors of parameters, each of which an update touches on its own; 0: not counted."""
    shapes: tuple[ParameterShape, ...] = ()
    """Shapes of all parameters; empty: not known."""
    named: tuple[NamedParameter, ...] = ()
    """Those that require gradients; empty: not known."""
    matrix_work: MatrixWork | None = None
    """Work of the line's matrix rule; None: it has none, or the work of its rule is not known."""
    largest_block_parameters: int | None = None
    """Gathered whole by FSDP while it is computed."""
    pieces: PipelinePieces | None = None
    """What a pipeline cuts it into; None: none can cut it, or they are not known."""
    blocks: int | None = None
    """Repeated modules in a row: what a pipeline is cut between; 0: there are none; None: not known."""
    builds_optimizer: bool = False
    """Its task has a `build_optimizer`, so that the line's table does not say what the optimizer keeps."""
    tensor_cuts: int | None = None
    """What every tensor-parallel degree divides; 0: the task has no rules for it; None: not known."""
    experts: int | None = None
    """What every expert-parallel degree divides: experts of a module, of several the greatest common divisor; None: it
    has none, or that is not known."""
    sequence: int | None = None
    """Places of a sample along which context parallelism cuts; None: the task names none, or that is not known."""
    obstacles: dict[str, str] = field(default_factory=dict)
    """Axis along which no gang can cut it, or `loss_chunks`, and why; others work, or that is not known."""
    activation_bytes_per_sample: int | None = None
    """Kept from forward to backward, by one sample."""
    traces: tuple[Trace, ...] = ()
    """One trace for each precision; empty: the model could not be followed."""
    transformer: Transformer | None = None
    """Its shape, as the line gives it; None: it gives none."""
    untraced: str = ""
    """Why there are no traces; empty: there are, or the model was not traced."""
    origin: str = "unknown"
    """`inspected`, `formula`, `traced`, `record <run>`."""

    @property
    def outside_parameters(self) -> int:
        """Parameters that no block holds; 0: not known."""
        if self.blocks == 0:
            return self.parameters
        return next((unit.parameters for trace in self.traces[:1] for unit in trace.units if not unit.name), 0)

    def trace(self, precision: Precision) -> Trace | None:
        """What is known of its passes in `precision`; both of 16 bits move and keep alike."""
        wide = precision == "fp32"
        return next((each for each in self.traces if (each.precision == "fp32") == wide), None)

    def activations(self, precision: Precision) -> int | None:
        """Bytes of one sample; None: not known."""
        trace = self.trace(precision)
        return self.activation_bytes_per_sample if trace is None else trace.activation_bytes_per_sample


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
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
    save_seconds: float | None = None
    """Training stood still so long for one save, on average; None: it saved nothing."""
    train_seconds: float | None = None
    """The gang had its places so long, its restarts among them; without the time in a queue."""
    outside_seconds: float | None = None
    """Time of a gang without a restart in which it took no step and made no save: its start, imports, an evaluation."""
    failures: int = 0
    """Restarts it went through."""
    restart_seconds: float | None = None
    """Mean seconds from a failure to the next step, without what is computed again; None: not known."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds of a step by part; empty: its clock could not tell them apart."""
    forecast: Forecast = Forecast()
    """The forecast that was made before the run."""

"""Lines and inventories that planner tests share."""

from gangline.planner.settings import StepLoad
from gangline.spec.config.line import Line, MeshTable, ProjectTable, TrainTable
from gangline.spec.config.site import Site
from gangline.spec.devices import Devices, ExchangeRate, Inventory, MatmulRate, MoveRate, Rates
from gangline.spec.forecast import Forecast, Term
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Memory, Precision
from gangline.spec.profile import Matrices, MeasuredRun, ModelProfile, Trace, Unit

SMALL = ModelProfile(parameters=875_264, origin="inspected")
USABLE = (80e9 - 4e9) / 1.1
"""Of a GPU of 80 GB with the default reserve and margin."""


def line(*, strategy: str = "auto", ranks="auto", batch: int = 16, micro="auto", steps: int = 120, **train) -> Line:
    mesh = train.pop("mesh", MeshTable(micro_batch=micro))
    table = TrainTable(steps=steps, global_batch=batch, strategy=strategy, ranks=ranks, mesh=mesh, **train)
    return Line(project=ProjectTable(name="demo", task="model:Demo"), train=table)


def cpu(cores: int = 2, memory: float = 8e9) -> Inventory:
    return Inventory(cores=cores, memory_bytes=int(memory), origin="this machine")


def gpus(count: int, nodes: int = 1, memory: float = 80e9, name: str = "h100") -> Inventory:
    device = Devices(kind="cuda", name=name, memory_bytes=int(memory), count=count)
    return Inventory(num_nodes=nodes, cores=64, memory_bytes=10**12, devices=(device,))


def model_of(devices: float) -> ModelProfile:
    """A model whose state fills so many of these GPUs."""
    return ModelProfile(parameters=int(devices * USABLE / 16), origin="inspected")


SITE = Site()

_BLOCK = Unit(name="layers.0", count=4, parameters=480_000, flops=2.4e8, saved_bytes=1e5, boundary_bytes=65_536)
_ROOT = Unit(name="", parameters=80_000, flops=4e7, saved_bytes=1e4, boundary_bytes=0)
TRACED = ModelProfile(
    parameters=2_000_000,
    largest_block_parameters=480_000,
    blocks=4,
    origin="traced",
    traces=(
        Trace(
            precision="fp32", flops_per_sample=1e9, moved_bytes_per_sample=2e6, moves=200,
            activation_bytes_per_sample=1_000_000, units=(_ROOT, _BLOCK), samples=2,
            matrices=(Matrices(rows=256, inner=128, columns=512, count=10),),
        ),
    ),
)  # fmt: skip
"""A model of 1 GFLOP a sample, in four equal blocks and what lies around them."""
RATES = Rates(
    device="cpu", device_name="a processor", torch="2", threads=1, cores=2, ranks=2, precision="fp32", backend="gloo",
    memory_bytes_per_second=1e10,
    products=(MatmulRate(rows=256, inner=128, columns=512, flops_per_second=1e12),),
    moves=(MoveRate(size_bytes=4096, seconds=1e-6), MoveRate(size_bytes=2**20, seconds=1e-4)),
    messages=tuple(
        ExchangeRate(kind=kind, size_bytes=size, seconds=1e-4 + size / 1e9)
        for kind in ("all_reduce", "all_gather", "reduce_scatter", "send")
        for size in (1024, 2**23)
    ),
)  # fmt: skip


def earlier(bias: float, *, parts=True, **more) -> MeasuredRun:
    """A run whose forecast, without corrections, was 10 ms of computing, and that took `bias` times as long."""
    terms = (Term(part="compute", seconds=0.01, raw_seconds=0.01, origin="measured"),)
    fields = {"strategy": "fsdp", "mesh": Mesh(dp_shard=2), "device": "cpu", "precision": "fp32", "global_batch": 16}
    return MeasuredRun(
        run="r", micro_batch=8, step_seconds=0.01 * bias, parts={"compute": 0.01 * bias} if parts else {},
        forecast=Forecast(terms=terms, step_seconds=0.01, device_name="a processor"), **fields | more,
    )  # fmt: skip


def step_load_of(*, micro_batch: int = 0, precision: Precision = "fp32", **more) -> StepLoad:
    """Load of a step; without a micro-batch only the state counts. Keys of `Memory` may stand among the others."""
    memory = {key: more.pop(key) for key in [*more] if key in Memory.__dataclass_fields__}
    return StepLoad(micro_batch=micro_batch, precision=precision, memory=Memory(**memory), **more)

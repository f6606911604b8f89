"""Questions to the planner that span what it is asked: examples, stated cases, and draws that anyone can repeat."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.planner.cases import RATES, TRACED, cpu, gpus, line
from tests.planner.formula.reference import EIGHT
from tests.planner.formula.test_reference_case import SITE as A100
from tests.planner.transformers import EIGHT as LARGE
from tests.planner.transformers import H100, MIXTURE, ONE, transformer

from gangline.errors import ConfigError
from gangline.fabric.topology.inventory import Fabric, Group
from gangline.planner.known_gpus import hypothetical_inventory, with_known_gpus, with_network
from gangline.spec.codec import digest, from_json
from gangline.spec.compression import Compression
from gangline.spec.config.fabric import FailureRates
from gangline.spec.config.line import EvaluateTable, Line, MemoryTable, MeshTable, PlanTable, ProjectTable
from gangline.spec.config.load import load_line
from gangline.spec.config.site import GpuTable, LimitsTable, Site, SitePlanTable
from gangline.spec.devices import Inventory, Rates
from gangline.spec.federated import FederatedTable, SimulatedMembers
from gangline.spec.forecast import Forecast, Term
from gangline.spec.mesh import Mesh
from gangline.spec.parameter_server import ParameterServer
from gangline.spec.profile import MeasuredRun, ModelProfile
from gangline.spec.strategies import names
from gangline.spec.transformer import Transformer

EXAMPLES = Path(__file__).parents[3] / "examples"
PROFILES = Path(__file__).with_name("profiles")
"""Models of the examples as `gangline plan --json` inspected them, without the names of their parameters."""
NUM_DRAWN = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What one plan is asked for."""

    name: str
    line: Line
    site: Site
    inventory: Inventory
    profile: ModelProfile | None = None
    """The model as inspected; None: a program, or a model known by the shape in the line."""
    history: Sequence[MeasuredRun] = ()
    rates: Rates | None = None
    fabric: Fabric | None = None
    is_hypothetical: bool = False
    """Asked with `--gpus`, of devices that are not here."""


def questions() -> Iterator[Question]:
    """All of them, in a fixed order."""
    yield from example_questions()
    yield from stated_questions()
    yield from (drawn_question(number) for number in range(NUM_DRAWN))


def example_questions() -> Iterator[Question]:
    """The lines of the examples on a laptop, and on a server of GPUs."""
    for folder in sorted(each.parent for each in EXAMPLES.glob("*/line.toml")):
        asked, recorded = load_line(folder / "line.toml"), PROFILES / f"{folder.name.removeprefix('federated-')}.json"
        profile = from_json(ModelProfile, recorded.read_bytes()) if recorded.exists() else None
        yield Question(
            name=f"{folder.name} on cores", line=asked, site=Site(), inventory=cpu(), profile=profile, rates=RATES
        )
        yield Question(name=f"{folder.name} on GPUs", line=asked, site=H100, inventory=gpus(8), profile=profile)


def stated_questions() -> Iterator[Question]:
    """Cases that documents and goals name: the reference case, 16,384 GPUs, two kinds, a network, matrix rules."""
    shape = PlanTable(transformer=EIGHT)
    reference = replace(line(batch=256, steps=2000, mesh=MeshTable(pp_schedule="1f1b")), plan=shape)
    yield Question(name="R1", line=reference, site=A100, inventory=gpus(8, 2, name="a100"), is_hypothetical=True)
    for count in (8, 64, 1024, 16_384):
        asked = replace(line(batch=4096, steps=1000), plan=shape)
        yield _by_count(f"h100:{count}", asked, Site(), f"h100:{count}")
    network = fabric_of(groups=8, servers=16)
    yield _by_count("h100:1024 on a fabric", replace(line(batch=1024, steps=1000), plan=shape), Site(), "h100:1024",
                    fabric=network)  # fmt: skip
    yield _by_count("two kinds", replace(line(batch=512, steps=1000), plan=shape), Site(), "h100:32,a100:32")
    late = replace(shape, deadline_seconds=3600.0, budget_money=10.0)
    yield _by_count("no plan within bounds", replace(line(batch=512), plan=late), H100, "h100:16")
    yield _by_count("too large", replace(line(batch=64), plan=shape), Site(), "t4:8")
    for rule in ("muon", "soap"):
        yield _by_count(
            rule, replace(line(batch=256, steps=100), plan=replace(shape, transformer=replace(EIGHT, layers=4)),
                          optimizer={"rule": rule, "overlap": "forward"} if rule == "muon" else {"rule": rule}),
            Site(), "h100:16",
        )  # fmt: skip


def _by_count(name: str, asked: Line, site: Site, wanted: str, *, fabric: Fabric | None = None) -> Question:
    """The question of `gangline plan --gpus`."""
    where = with_known_gpus(site, wanted)
    where = where if fabric is None else with_network(where, fabric)
    inventory = hypothetical_inventory(where, wanted)
    return Question(name=name, line=asked, site=where, inventory=inventory, fabric=fabric, is_hypothetical=True)


def fabric_of(*, groups: int, servers: int, latency: float | None = None) -> Fabric:
    """A network of equal groups, whose leaves have half as many ports up as down."""
    names = [Group(name=f"g{at}", servers=tuple(f"g{at}s{n}" for n in range(servers))) for at in range(groups)]
    return Fabric(
        groups=tuple(names), nic_bytes_per_second=50e9, intra_bus_bytes_per_second=200e9, path_policy="hash",
        leaf_uplinks=max(1, servers // 2), nic_latency_seconds=latency, intra_latency_seconds=latency and latency / 5,
    )  # fmt: skip


def drawn_question(number: int) -> Question:
    """The draw of this number: equal on each call, and apart from all others."""
    random = Random(number)
    while True:
        try:
            return _draw(random, f"drawn {number}")
        except ConfigError:
            continue  # tables that contradict each other ask nothing


def _draw(random: Random, name: str) -> Question:
    kind = random.choice(("traced", "traced", "traced", "cores", "size", "formula", "formula", "kinds", "command"))
    site, inventory = _site(random), _inventory(random, kind)
    profile, shape = _model(random, kind)
    fabric = None
    if kind in ("traced", "formula") and random.random() < 0.4:
        fabric = fabric_of(groups=4, servers=8, latency=random.choice((None, 5e-6)))
        site = with_network(site, fabric)
    asked = _line(random, kind, shape)
    history = tuple(_runs(random, asked, inventory)) if random.random() < 0.5 else ()
    return Question(
        name=name, line=asked, site=site, inventory=inventory, profile=profile, history=history,
        rates=RATES if kind == "cores" and random.random() < 0.8 else None, fabric=fabric,
        is_hypothetical=shape is not None and inventory.gpus is not None and random.random() < 0.5,
    )  # fmt: skip


def _site(random: Random) -> Site:
    def table(flops: float, price: float) -> GpuTable:
        return GpuTable(
            memory_bytes=80e9, flops_per_second={"bf16": flops, "fp32": flops / 4} if random.random() < 0.9 else {},
            memory_bytes_per_second=2.5e12, link_bytes_per_second=random.choice((300e9, 300e9, None)),
            network_bytes_per_second=random.choice((40e9, 4e9, 4e8)),
            price_per_hour=random.choice((price, price, None)),
            link_latency_seconds=random.choice((None, 3e-6)), network_latency_seconds=random.choice((None, 2e-5)),
            host_memory_bytes=random.choice((None, 2e12)),
        )  # fmt: skip

    trust = SitePlanTable(
        band=random.choice((0.05, 0.02, 0.2)), overlap=random.choice((0.0, 0.5, 0.9)),
        start_seconds=random.choice((0.0, 90.0)),
        saves_to=random.choice((None, "file system")), failures=random.choice(("llama3", FailureRates(gpu_hours=5e4))),
    )  # fmt: skip
    limits = LimitsTable(gpu_hours_per_run=random.choice((None, None, 100.0)))
    return Site(gpu={"h100": table(400e12, 3.0), "a100": table(140e12, 1.5)}, plan=trust, limits=limits)


def _inventory(random: Random, kind: str) -> Inventory:
    if kind == "cores" or (kind == "command" and random.random() < 0.5):
        return cpu(cores=random.choice((1, 2, 4, 8)), memory=random.choice((2e9, 8e9, 64e9)))
    memory = random.choice((40e9, 80e9, 80e9, 80e9))
    first = gpus(random.choice((1, 2, 4, 8, 8)), random.choice((1, 2, 4, 8)), memory=memory)
    if kind != "kinds":
        return first
    return replace(gpus(8, random.choice((1, 2, 4))), others=(gpus(8, random.choice((1, 2, 4)), name="a100"),))


def _model(random: Random, kind: str) -> tuple[ModelProfile | None, Transformer | None]:
    """A profile, or the shape that the line gives."""
    if kind == "cores":
        return TRACED, None
    if kind == "size":
        return ModelProfile(parameters=random.randint(0, 3 * 10**10), origin="inspected"), None
    if kind == "command" and random.random() < 0.5:
        return None, None
    if kind in ("formula", "command") or (kind == "kinds" and random.random() < 0.5):
        experts = random.choice((1, 1, 1, 8))
        shape = replace(EIGHT, layers=random.choice((2, 8, 32)), experts=experts, active_experts=min(2, experts),
                        tied=random.random() < 0.3)  # fmt: skip
        return None, shape
    known: dict[str, Any] = random.choice((ONE, ONE, LARGE, MIXTURE))
    return traced_model(random.choice((2048, 4096, 32_768)), tuple(sorted(known.items()))), None


@cache
def traced_model(sequence: int, widths: tuple[tuple[str, int], ...]) -> ModelProfile:
    """A transformer as a trace would have it."""
    return transformer(sequence=sequence, **dict(widths))


def _line(random: Random, kind: str, shape: Transformer | None) -> Line:
    strategy = random.choice(("auto",) * 14 + ("explicit", random.choice(list(names()))))
    degrees = {axis: random.choice((1, 1, 2)) for axis in ("pp", "dp_replicate", "dp_shard", "cp", "tp")}
    mesh = MeshTable(
        micro_batch=random.choice(("auto", "auto", "auto", 1, 2)), bucket_bytes=random.choice(("auto", "auto", 2**26)),
        pp_schedule=random.choice(("auto", "auto", "1f1b", "interleaved_1f1b")),
        **degrees if strategy == "explicit" else {},
    )  # fmt: skip
    memory = MemoryTable(
        activation_checkpointing=random.choice(("auto", "auto", "auto", "none", "full", "every_2")),
        loss_chunks=random.choice(("auto", "auto", 1)), offload=random.choice(("auto",) * 14 + ("none", "cpu")),
        gradient_sync=random.choice(("auto", "auto", "last", "each")),
    )  # fmt: skip
    compression = Compression(kind=random.choice(("none",) * 20 + ("bf16", "powersgd", "topk", "int8")))
    ranks = random.choice(("auto",) * 12 + (1, 2, 8, (1, 8), (2, 16)))
    asked = line(
        strategy=strategy, ranks=ranks, batch=random.choice((8, 24, 64, 256, 1024)), steps=random.choice((100, 5000)),
        mesh=mesh, memory=memory, compression=compression, compile=random.random() < 0.1,
        precision=random.choice(("auto",) * 5 + ("fp32", "bf16")),
    )  # fmt: skip
    bounds = PlanTable(
        transformer=shape, objective=random.choice(("time", "time", "money")),
        deadline_seconds=random.choice((None, None, None, 3600.0)),
        budget_money=random.choice((None, None, None, 50.0)),
    )  # fmt: skip
    asked = replace(asked, plan=bounds, evaluate=EvaluateTable(seeds=random.choice((1, 1, 3))))
    if kind == "command":
        return replace(asked, project=ProjectTable(name="demo", command=("python", "train.py")))
    if kind == "cores" and random.random() < 0.2:
        return replace(asked, federated=FederatedTable(local_steps=20, quorum=3, simulate=SimulatedMembers(members=5)))
    if random.random() < 0.05:
        server = ParameterServer(workers=2)
        return replace(asked, train=replace(asked.train, strategy="parameter_server", parameter_server=server))
    return asked


def _runs(random: Random, asked: Line, inventory: Inventory) -> Iterator[MeasuredRun]:
    """Earlier runs on such devices, whose forecasts were off by some share."""
    is_cpu = inventory.gpus is None
    world = 2 if is_cpu else inventory.num_nodes * inventory.gpus.count
    for _ in range(random.choice((1, 3, 12))):
        strategy, mesh = random.choice(
            (("ddp", Mesh(dp_replicate=world)), ("fsdp", Mesh(dp_shard=world)), ("zero2", Mesh(dp_shard=world)))
        )
        seconds, bias = random.uniform(0.1, 5.0), random.uniform(0.8, 1.4)
        parts = {"compute": 0.8 * seconds, "communication": 0.15 * seconds, "data": 0.01 * seconds}
        terms = tuple(
            Term(part=part, seconds=each / bias, raw_seconds=each / bias, origin="given")
            for part, each in parts.items() if part != "data"
        )  # fmt: skip
        yield MeasuredRun(
            run="r", model=digest(asked.model), strategy=strategy, mesh=mesh, device="cpu" if is_cpu else "cuda",
            device_name=RATES.device_name if is_cpu else "h100", precision="fp32" if is_cpu else "bf16",
            global_batch=asked.train.global_batch, micro_batch=1, step_seconds=seconds,
            peak_memory_bytes=random.choice((None, 20 * 10**9)), save_seconds=2.0, train_seconds=3600.0,
            failures=random.choice((0, 1)), restart_seconds=random.choice((None, 60.0)),
            outside_seconds=random.choice((None, 30.0)), parts=random.choice((parts, {})),
            forecast=Forecast(
                terms=terms, step_seconds=seconds / bias, memory_bytes=19 * 10**9, device_name="h100",
                origin=random.choice(("rates given", "calibrated n=2")),
            ),
        )  # fmt: skip

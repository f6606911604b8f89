"""Devices that a plan may use, and the world sizes and micro-batches that they, the line and the batch allow."""

from dataclasses import dataclass, replace
from math import isqrt

from gangline.errors import ConfigError
from gangline.fabric.topology.inventory import Fabric
from gangline.planner.known_gpus import LINK_LATENCIES, LINK_RATES, KnownGpu, peak_of
from gangline.spec.config.line import Line
from gangline.spec.config.problems import nearest_multiples
from gangline.spec.config.site import GpuTable, Site
from gangline.spec.devices import Inventory
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Device, Precision

CPU_RANKS = 2
"""Ranks of a CPU node unless the line asks: more would learn the same, slower."""

CPU_RESERVE_BYTES = 200_000_000
"""Private memory of a rank forked from a process with torch in it, before the first parameter (163 MB measured)."""

_GPU_RESERVE_BYTES = 4_000_000_000
NO_GPU = GpuTable(memory_bytes=0.0)
"""A kind of which nothing is known, and cores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Devices of one kind that a plan may use."""

    device: Device
    name: str
    num_nodes: int
    slots: int
    """Ranks of one node when each has its own device or core."""
    preferred: int
    """Ranks of one node when the line leaves it open."""
    node_memory_bytes: float | None
    """What all ranks of a node share (CPU), or `slots` times one device."""
    reserve_bytes: float
    """Bytes of one rank: context, communicators, libraries."""
    margin: float
    """Share by which a forecast may be short of the peak."""
    gpu: GpuTable = NO_GPU
    """What is known of one GPU, as the site gives it, rates of its maker where the site gives none."""
    fabric: Fabric | None = None
    """Network by whose paths messages between nodes go; None: as if nothing shared a link."""
    host_memory_bytes: float | None = None
    """Memory of one node, in addition to its GPUs; None: not known, or there are none."""
    rates_origin: str = ""
    """Where both rates come from: `given` by the site, `published` by the maker, `assumed` as shares of what it
    publishes; empty: not known."""

    @property
    def assumed(self) -> frozenset[str]:
        """Keys of `[gpu.NAME]` whose values are assumed, where the kind is a built-in one."""
        return frozenset(self.gpu.assumed if isinstance(self.gpu, KnownGpu) else ())

    @property
    def exchange_origin(self) -> str:
        """Where seconds of messages come from: `given, latency not stated, paths hash`."""
        rates = self.rates_origin if not self.assumed else "assumed" if self.assumed & LINK_RATES else "given"
        words = [rates, f"latency {self.latency_origin}"]
        return ", ".join([*words, *([f"paths {self.fabric.path_policy}"] if self.fabric else [])])

    @property
    def latency_origin(self) -> str:
        """`given`, `assumed`, or `not stated`."""
        if self.gpu.link_latency_seconds is None and self.gpu.network_latency_seconds is None:
            return "not stated"
        return "assumed" if self.assumed & LINK_LATENCIES else "given"

    @property
    def size(self) -> int:
        """Devices, or cores, of all nodes."""
        return self.num_nodes * self.slots

    def usable_bytes(self, ranks_per_node: int) -> float | None:
        """What one rank may hold at its peak by our forecast; None: not known."""
        if self.node_memory_bytes is None:
            return None
        shares = self.slots if self.device == "cuda" else ranks_per_node
        return max(0.0, (self.node_memory_bytes / shares - self.reserve_bytes) / (1 + self.margin))

    def usable_host_bytes(self, ranks_per_node: int) -> float | None:
        """What one rank may leave in the memory of its server in addition to its device; None: not known."""
        if self.host_memory_bytes is None:
            return None
        return max(0.0, (self.host_memory_bytes / ranks_per_node - CPU_RESERVE_BYTES) / (1 + self.margin))


def open_pool(site: Site, inventory: Inventory, *, fabric: Fabric | None = None) -> Pool:
    """GPUs where there are any, joined by `fabric`, else the cores."""
    gpus = inventory.gpus
    if gpus is None:
        return Pool(
            device="cpu", name="cpu", num_nodes=inventory.num_nodes, slots=inventory.cores,
            preferred=min(CPU_RANKS, inventory.cores), node_memory_bytes=inventory.memory_bytes,
            reserve_bytes=CPU_RESERVE_BYTES, margin=site.plan.memory_margin,
        )  # fmt: skip
    table, peak = gpu_table(site, gpus.name), peak_of(gpus.name)
    memory = gpus.memory_bytes or (table.memory_bytes if table else None)
    given = table or NO_GPU
    gpu = given if peak is None else replace(
        given, flops_per_second=dict(given.flops_per_second or peak.flops_per_second),
        memory_bytes_per_second=given.memory_bytes_per_second or peak.memory_bytes_per_second,
    )  # fmt: skip
    origin = "given" if given.flops_per_second else "published" if peak else ""
    return Pool(
        device="cuda", name=gpus.name, num_nodes=inventory.num_nodes, slots=gpus.count, preferred=gpus.count,
        node_memory_bytes=memory * gpus.count if memory else None, host_memory_bytes=inventory.memory_bytes,
        reserve_bytes=table.reserve_bytes if table else min(_GPU_RESERVE_BYTES, (memory or 0) / 8),
        margin=site.plan.memory_margin, gpu=gpu, fabric=fabric,
        rates_origin="assumed" if isinstance(gpu, KnownGpu) else origin,
    )  # fmt: skip


def choose_precision(line: Line, inventory: Inventory) -> Precision:
    """fp32 on CPU, else bf16, or fp16 where a GPU has no bf16."""
    gpus, requested = inventory.gpus, line.train.precision
    if requested == "auto":
        return "fp32" if gpus is None else "bf16" if gpus.has_bf16 else "fp16"
    if requested == "fp16" and gpus is None:
        raise ConfigError('train.precision: wanted a GPU for "fp16", found CPUs; "fp32" and "bf16" work here')
    if requested == "bf16" and gpus is not None and not gpus.has_bf16:
        raise ConfigError(f'train.precision: {gpus.name or "this GPU"} has no bf16; "fp16" and "fp32" work here')
    return requested


def gpu_table(site: Site, name: str) -> GpuTable | None:
    """What the site says of a kind of GPU; the only table is that of any."""
    return site.gpu.get(name) or (next(iter(site.gpu.values())) if len(site.gpu) == 1 else None)


def has_own_rates(site: Site, name: str) -> bool:
    """The rates of this kind of GPU are its own: a site that describes one kind lends them to whatever is there."""
    return len(site.gpu) != 1 or name in site.gpu


MOST_RANKS_PER_CORE = 16
"""Ranks may share cores, slowly; beyond this a number was mistyped."""


def choose_world(line: Line, pool: Pool) -> int:
    """Ranks of a data-parallel gang: as many as are there and share the batch evenly.

    Raises:
        ConfigError: The line asks for ranks that are not there, or that do not divide the batch.
    """
    ranks = line.train.ranks if line.project.distributed else 1
    if isinstance(ranks, int):
        check_world(line, pool, ranks)
        return ranks
    low, high = (1, pool.num_nodes * pool.preferred) if ranks == "auto" else ranks
    most, unit, batch = min(high, pool.size), micro_unit(line), line.train.global_batch
    if pool.size < low:
        if pool.device == "cuda":
            raise ConfigError(f"train.ranks: wanted at least {low} GPUs, found {pool.size}; [1, {pool.size}] works")
        _require_cores(pool, low, "train.ranks")
        most = low
    for world in range(most, low - 1, -1):
        if batch % (world * unit) == 0 and is_whole(pool, world):
            return world
    wanted = f"from {low} to {most} ranks" if most > low else f"{low} ranks"
    raise ConfigError(
        f"train.global_batch: wanted a batch that {wanted} share evenly in micro-batches of {unit}, "
        f"found {batch}; {nearest_multiples(batch, low * unit)} works"
    )


def most_ranks(line: Line, pool: Pool) -> int:
    """Ranks of a line that does not say how many: all that are there, within its bounds."""
    ranks = line.train.ranks
    return max(ranks[0], min(ranks[1], pool.size)) if isinstance(ranks, tuple) else pool.num_nodes * pool.preferred


def check_world(line: Line, pool: Pool, world: int, *, shares: int | None = None, key: str = "train.ranks") -> None:
    """Refuse a world size that is not there, splits a node, or does not divide the batch into `shares`."""
    if pool.device == "cuda" and world > pool.size:
        works = f"{pool.size} works, or a larger pool"
        raise ConfigError(f"{key}: wanted {world} GPUs, found {pool.size} on {pool.num_nodes} nodes; {works}")
    if pool.device == "cpu":
        _require_cores(pool, world, key)
    if not is_whole(pool, world):
        per_node = _packing(pool)
        below = world // per_node * per_node
        works = f"{below} or {below + per_node} works" if below + per_node <= pool.size else f"{below} works"
        raise ConfigError(f"{key}: wanted whole nodes of {per_node} ranks, found {world} ranks; {works}")
    shares, batch = world if shares is None else shares, line.train.global_batch
    if batch % shares:
        near = " or ".join(str(divisor) for divisor in _nearest_divisors(batch, shares))
        raise ConfigError(
            f"{key}: wanted {shares} equal shares of global_batch = {batch}, found a remainder of {batch % shares}; "
            f"ranks {near} or global_batch {nearest_multiples(batch, shares)} works"
        )


def is_whole(pool: Pool, world: int) -> bool:
    """Does every node that takes part give the same number of ranks?"""
    return world <= _packing(pool) or world % num_nodes(pool, world) == 0


def num_nodes(pool: Pool, world: int) -> int:
    """Fewest nodes that hold `world` ranks; CPU ranks may share a core when no node is left."""
    return min(pool.num_nodes, -(-world // _packing(pool)))


def ranks_per_node(pool: Pool, world: int) -> int:
    """Ranks of the fullest node."""
    return -(-world // num_nodes(pool, world))


def _packing(pool: Pool) -> int:
    """Ranks that fill a node."""
    return pool.slots if pool.device == "cuda" else pool.preferred


def micro_unit(line: Line) -> int:
    """Samples that one rank takes at once because the line says so, else 1."""
    micro_batch = line.train.mesh.micro_batch
    return micro_batch if isinstance(micro_batch, int) else 1


def _require_cores(pool: Pool, world: int, key: str) -> None:
    if world > (most := MOST_RANKS_PER_CORE * pool.size):
        raise ConfigError(f"{key}: wanted at most {MOST_RANKS_PER_CORE} ranks a core, found {world}; {most} works")


def divisors(number: int) -> list[int]:
    """All of them, ascending."""
    small = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def _nearest_divisors(total: int, wanted: int) -> list[int]:
    """Largest divisor of `total` up to `wanted`, and the smallest above where there is one."""
    every = divisors(total)
    below = max(each for each in every if each <= max(wanted, 1))
    return [below, *[each for each in every if each > wanted][:1]]


FILLING_PER_STAGE = 4
"""Micro-batches a stage that keep a pipeline busy: what is idle at its ends is then at most a fifth."""
MOST_AUTO = 16
"""A rank's whole share up to here; beyond it, smaller passes accumulate."""


def micro_batches(line: Line, mesh: Mesh) -> list[int]:
    """What the line says, else the divisors of a rank's share, largest first, at most `MOST_AUTO` and such that a
    pipeline is filled.

    Raises:
        ConfigError: The line's own number does not divide the share; the two nearest that do are named.
    """
    share = line.train.global_batch // mesh.data_parallel
    requested = line.train.mesh.micro_batch
    if requested == "auto":
        most = min(max(1, share // (FILLING_PER_STAGE * mesh.pp)) if mesh.pp > 1 else share, MOST_AUTO)
        return [size for size in range(most, 0, -1) if share % size == 0] or [1]
    if share % requested:
        near = " or ".join(str(size) for size in _nearest_divisors(share, requested))
        raise ConfigError(
            f"train.mesh.micro_batch: wanted a divisor of a rank's share of {share}, found {requested}; {near} works"
        )
    return [requested]

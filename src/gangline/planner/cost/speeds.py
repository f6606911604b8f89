"""Rates of devices, measured, else given by the site, else published; and of the link to the host. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log

from gangline.fabric.placement.mapping import EdgeBytes
from gangline.planner.cost.exchange import Collective, LinkRates, link_rates, sent_share
from gangline.planner.pool import Pool, ranks_per_node
from gangline.planner.settings import StepLoad
from gangline.spec.devices import Rates
from gangline.spec.plan import Precision
from gangline.spec.profile import Trace
from gangline.spec.strategies import Wrapping

Point = tuple[float, float]
"""Bytes, seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Speeds:
    """Speeds of one rank, while as many as a node has do the same."""

    origin: str
    """`measured`, `given`, `published`, `assumed`."""
    exchange_origin: str = "measured"
    latency_origin: str = "measured"
    """Origin of the latency of messages."""
    flops_per_second: float
    """Rate of the products of one model."""
    attention_flops_per_second: float | None = None
    """Rate of fused attention, forward and backward, without what a mask leaves out; None: as of products."""
    moves: Sequence[Point] = ()
    memory_bytes_per_second: float | None = None
    """Rate in place, on what no cache holds."""
    rates: Rates | None = None
    links: LinkRates | None = None
    """Where messages were not measured."""
    crowd: float = 1.0
    """How many times longer everything takes than it did while it was measured: ranks share cores."""

    def move_seconds(self, size_bytes: float) -> float | None:
        """Seconds of an operation that computes little and writes a new result; None: not known.

        On a GPU it takes its launch, as the smallest one does, and its bytes as a stream moves them: two models on an
        H100 had 7 us an operation and 3.1 TB/s, where the smallest operation took 8 us and a stream moved 3.0 TB/s.
        """
        streamed = self.stream_seconds(size_bytes)
        if self.rates is not None and self.rates.device == "cuda" and streamed is not None:
            return self.moves[0][1] + streamed
        return self.crowd * interpolate(self.moves, size_bytes) if self.moves else streamed

    def stream_seconds(self, size_bytes: float) -> float | None:
        """Seconds of reading and writing so much in place; None: not known."""
        return size_bytes / self.memory_bytes_per_second if self.memory_bytes_per_second else None

    def exchange_seconds(self, message: Collective) -> float | None:
        """Seconds of one message; None: none was measured, and no bandwidth of links is given.

        Of other numbers of ranks than were measured a message takes as long as one that sends as many bytes a rank.
        """
        rates, kind = self.rates, message.kind
        points = [(rate.size_bytes, rate.seconds) for rate in rates.messages if rate.kind == kind] if rates else []
        if rates is None or not points:
            return self.links.seconds(message) if self.links else None
        sent, measured = (sent_share(kind, each, rates.device) for each in (message.ranks, rates.ranks))
        return self.crowd * interpolate(points, message.size_bytes * sent / measured)


def speeds_of(
    pool: Pool, precision: Precision, trace: Trace, rates: Rates | None, *, world_size: int, stages: int = 1,
    edges: EdgeBytes | None = None,
) -> Speeds | None:  # fmt: skip
    """What is known of `pool`; None: nothing.

    Products of the `trace` weigh the `rates` that were measured on these very devices, if any were; `edges` are what
    stages and replicas send each other, if that is known.
    """
    ranks = ranks_per_node(pool, world_size)
    if rates is not None and rates.precision == precision:
        crowd = max(1.0, ranks / rates.cores) / max(1.0, rates.ranks / rates.cores) if pool.device == "cpu" else 1.0
        return Speeds(
            origin="measured",
            flops_per_second=_product_flops(trace, rates) / crowd,
            attention_flops_per_second=_attention_flops(trace, rates, crowd=crowd),
            moves=[(rate.size_bytes, rate.seconds) for rate in rates.moves],
            memory_bytes_per_second=rates.memory_bytes_per_second / crowd,
            rates=rates,
            crowd=crowd,
        )
    flops = pool.gpu.flops_per_second.get(precision)
    if not flops:
        return None
    return Speeds(
        origin=pool.rates_origin, flops_per_second=flops, memory_bytes_per_second=pool.gpu.memory_bytes_per_second,
        links=link_rates(pool, world_size, stages=stages, edges=edges), exchange_origin=pool.exchange_origin,
        latency_origin=pool.latency_origin,
    )  # fmt: skip


def _product_flops(trace: Trace, rates: Rates) -> float:
    """Rate of the model's products, the largest of which were measured: by time, not by kind."""
    work = {(matrix.rows, matrix.inner, matrix.columns): 2 * matrix.rows * matrix.inner * matrix.columns * matrix.count
            for matrix in trace.matrices}  # fmt: skip
    known = [
        (work.get((product.rows, product.inner, product.columns), 0), product.flops_per_second)
        for product in rates.products
    ]
    seconds = sum(flops / rate for flops, rate in known)
    if not seconds:  # of another model: what a product of the measured ones does on average
        return len(known) / sum(1 / rate for _, rate in known)
    return sum(flops for flops, _ in known) / seconds


def _attention_flops(trace: Trace, rates: Rates, *, crowd: float = 1.0) -> float | None:
    """Rate of the model's fused attention: of sizes that were not measured the mean of the others; None: none was."""
    known = {(rate.queries, rate.keys, rate.width, rate.is_causal): rate.flops_per_second for rate in rates.attention}
    if not known:
        return None
    mean = len(known) / sum(1 / rate for rate in known.values())
    work = [
        (
            attention.count * attention.flops,
            known.get((attention.queries, attention.keys, attention.width, attention.is_causal), mean),
        )
        for attention in trace.attention
    ]
    seconds = sum(flops / rate for flops, rate in work)
    return sum(flops for flops, _ in work) / seconds / crowd if seconds else mean / crowd


def interpolate(points: Sequence[Point], at: float) -> float:
    """Seconds along straight lines of the logarithms of sizes; the least takes as long as any smaller one."""
    first, last = points[0], points[-1]
    if at <= first[0]:
        return first[1]
    if at >= last[0]:
        return last[1] * at / last[0]
    low, high = next((low, high) for low, high in pairwise(points) if at <= high[0])
    share = log(at / low[0]) / log(high[0] / low[0])
    return exp(log(low[1]) + share * log(high[1] / low[1]))


ASSUMED_LINK_BYTES_PER_SECOND = 25e9
"""Rate of one GPU, each way, where the site gives none; 16 lanes of PCIe 4.0 have a line rate of 31.5e9."""

ASSUMED_MEMORY_BYTES_PER_SECOND = 200e9
"""Rate of a server, where the site gives none."""

SHARD_BYTES = 4
"""Bytes of one parameter or gradient on the host: FSDP2 copies float32 and casts on the device."""

NO_MATRIX_RULE = "the time of a matrix rule over shards on the host is not known"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRates:
    """Rates between one rank and its host."""

    link_bytes_per_second: float = ASSUMED_LINK_BYTES_PER_SECOND
    memory_bytes_per_second: float = ASSUMED_MEMORY_BYTES_PER_SECOND
    """Its share of the server's."""
    is_given: bool = False
    """Both by the site."""


def host_rates(pool: Pool, ranks_per_node: int) -> HostRates:
    """Rates as the site gives them, else assumed."""
    link, memory = pool.gpu.host_link_bytes_per_second, pool.gpu.host_memory_bytes_per_second
    return HostRates(
        link_bytes_per_second=link or ASSUMED_LINK_BYTES_PER_SECOND,
        memory_bytes_per_second=(memory or ASSUMED_MEMORY_BYTES_PER_SECOND) / ranks_per_node,
        is_given=bool(link and memory),
    )


def transfer_seconds(parameters: float, host: HostRates, wrapping: Wrapping, load: StepLoad) -> float:
    """Seconds of the shard of one rank in a step, none of it hidden: it goes to the device before each gather, and its
    gradients come back after each reduction."""
    return SHARD_BYTES * parameters * sum(load.rounds(wrapping)) / host.link_bytes_per_second

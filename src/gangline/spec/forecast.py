"""What a training is expected to need and, in the same form, was seen to need: seconds by part, memory, money. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

PARTS = ("data", "compute", "communication", "bubble", "optimizer", "checkpoint", "other")
"""What the seconds of a step go to: `compute` is forward and backward, with what tensor-parallel peers exchange in
them; `communication` is what ranks wait for in addition to it; `checkpoint` is a save's share of one step."""
UNCORRECTED_ORIGINS = frozenset(f"rates {each}" for each in ("measured", "given", "published", "assumed"))
"""Origins of a step whose rates no run has corrected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One part of a step."""

    part: str
    """A word of PARTS."""
    seconds: float
    """Seconds that one step of one rank spends on it."""
    raw_seconds: float | None = None
    """`seconds` without the correction by earlier runs; None: no formula gave them, they were measured."""
    origin: str
    """`given` by the site, `published` by the maker, `assumed` shares of that, `measured` here or in `n=` runs,
    `calibrated n=`, `default`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryCause:
    """What a part of a rank's memory holds at its peak."""

    cause: str
    """`weights`, `gradients`, `optimizer`, `gathered` of shards, `activations`, `buffers`, `updates` on their way."""
    size_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientBuckets:
    """Messages in which copies average their gradients during the last backward pass of a step."""

    count: int
    """Buckets that follow from their size alone: torch's own has a first one of 1 MiB besides, and no tensor is
    divided."""
    size_bytes: float
    """Size of one bucket, in float32."""
    is_given: bool = False
    """The line gives the size; else it is torch's own."""
    exposed_seconds: float | None = None
    """Seconds from the end of that pass until all are averaged, on a link that does nothing else; None: not known."""
    latency_seconds: float | None = None
    """Seconds of the smallest message."""
    latency_origin: str = "measured"
    """`measured`, or `given` by the site or its fabric."""
    best_count: int | None = None
    """Number of buckets that would leave least exposed by the same model; nothing is chosen by it."""
    best_exposed_seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateTraffic:
    """Updates of matrices from their owners to all copies, where they travel during the next forward pass."""

    buckets: int
    """Number of buckets, equal in size, sent one after the other."""
    size_bytes: float
    """Size of one bucket, on each rank."""
    seconds: float
    """Seconds that all buckets are on their way."""
    hiding_seconds: float
    """Computing of that pass that hides them: the share that the site grants, less what other exchanges take of it."""
    exposed_seconds: float
    """Seconds that the pass waits for them, as the forecast counts."""
    least_exposed_seconds: float
    """Seconds that it would wait if all its computing hid them."""

    @property
    def hidden_seconds(self) -> float:
        """The part of `seconds` that computing hides, as the forecast counts."""
        return self.seconds - self.exposed_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What the planner knows; None is "not known yet", never a guess."""

    parameters: int | None = None
    memory_bytes: int | None = None
    """Peak of the busiest rank: of tensors; measured on a CPU, of its whole process."""
    memory_origin: str = "formula"
    """Where that comes from: `formula`, `memory run`."""
    memory_causes: tuple[MemoryCause, ...] = ()
    """What `memory_bytes` consists of, by formula; empty: not known."""
    step_seconds: float | None = None
    """Seconds of an ordinary step: what it does for a save is not in it, though in `wall_seconds`."""
    wall_seconds: float | None = None
    """Seconds of the whole training: its steps over `effective_share`, after the start."""
    effective_share: float = 1.0
    """Share of the time that becomes steps, where saves and interruptions are counted."""
    restart: Term | None = None
    """Time from an interruption to the next step, as `effective_share` counts it; None: it counts none."""
    interrupt_probability: float | None = None
    """Chance that a failure of some device stops the gang within `wall_seconds`; None: not asked, as on cores."""
    gpu_hours: float | None = None
    money: float | None = None
    flops_per_sample: float | None = None
    """Floating-point operations of forward and backward on one sample, recomputation left out."""
    device_flops: float | None = None
    """Peak of one device at the plan's precision, per second."""
    bubble: float | None = None
    """Share of a pipeline's time in which a rank has nothing to do."""
    wire_bytes: float | None = None
    """Bytes that one rank sends to others in a step."""
    terms: tuple[Term, ...] = ()
    """Parts of the step, each at most once."""
    buckets: GradientBuckets | None = None
    """None: gradients are not averaged in buckets, or the model was not traced."""
    updates: UpdateTraffic | None = None
    """None: none travel during the forward pass, or how long messages take is not known."""
    way: str = ""
    """How the shape is run: samples of a pass, what is computed again, how gradients are squeezed; equal for equal
    runs."""
    device_name: str = ""
    """Processor or GPU that the rates behind `terms` are about."""
    missing: str = ""
    """Why there is no step time; empty: there is one, or none was computed."""
    origin: str = "unknown"
    """Where the step comes from: `measured n=3` by equal runs, `calibrated n=3` by runs alike, one of
    UNCORRECTED_ORIGINS where nothing corrected its rates yet; without one `traced`, `formula`, `unknown` say where the
    other numbers do."""

    @property
    def is_first(self) -> bool:
        """No run has corrected its rates yet."""
        return self.origin in UNCORRECTED_ORIGINS

    def paid(self, times: float) -> "Forecast":
        """The forecast with what is paid for so many such trainings, or for one that takes so many times as long."""
        hours, money = (each if each is None else each * times for each in (self.gpu_hours, self.money))
        return replace(self, gpu_hours=hours, money=money)


def exposed_seconds(seconds: Sequence[float], before: Sequence[float], forward_seconds: float) -> float:
    """All waits of one forward pass for buckets that travel one after the other, from its start.

    A pass that waited for a bucket is later by that at all others: its waits add up to the largest time by which a
    bucket comes after what is computed before its first use.

    Args:
        seconds: That each bucket travels, in the order of first use.
        before: Share of the pass that is computed before the first use of each.
        forward_seconds: Of a pass that waits for nothing, as far as it hides what travels.
    """
    late = (arrival - share * forward_seconds for arrival, share in zip(accumulate(seconds), before, strict=True))
    return max(0.0, *late) if seconds else 0.0

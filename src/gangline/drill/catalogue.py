"""Catalogue of drills by name: what each promises, which ones a site allows, and where one strikes.

Rank and step of a target are chosen by the seed where the caller left them open.
"""

import random
from dataclasses import dataclass
from typing import Literal

from gangline.errors import ConfigError, UsageError
from gangline.line.request.targets import launcher_of
from gangline.spec.config.site import Site
from gangline.spec.plan import Plan
from gangline.units import format_seconds

ALL = "all"
"""Name of all drills, one after the other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillKind:
    """A drill: its fault, and the target for detection and recovery."""

    name: str
    row: str
    """Row of the list of faults in `tests/faults/protections.md`."""
    text: str
    """Description of the fault."""
    fault: str
    """The fault with its target, of `{rank}`, `{duration}` and `{ranks}`."""
    target: str
    """Target for detection and recovery."""
    recover_seconds: float | None = None
    """Limit for recovery; None if the target is about something else, which `evaluate` checks."""
    past_detection: bool = False
    """The limit counts from the detection, not from the injection."""
    seconds: float | None = None
    """Default duration; None: the fault is momentary, or lasts until it is handled."""
    stalls: bool = True
    """No rank steps during the fault, so the time until the next step is lost."""
    setup: Literal["", "task", "nodes", "store"] = ""
    """What it changes in a gang before the start, which takes a run of its own."""


DRILLS: dict[str, DrillKind] = {
    kind.name: kind
    for kind in (
        DrillKind(
            name="kill-rank", row="T1", text="SIGKILL to a rank at a step; its gang resumes from the last checkpoint",
            fault="SIGKILL to rank {rank}",
            target="target <= 15 s", recover_seconds=15.0,
        ),
        DrillKind(
            name="kill-twice", row="T2", text="SIGKILL to a rank, and again while the gang restarts",
            fault="SIGKILL to rank {rank}, and again in the restart",
            target="target <= 30 s, at most two charges", recover_seconds=30.0,
        ),
        DrillKind(
            name="freeze-rank", row="T3", text="stops a rank and thaws it; a short stop passes, a long one is declared",
            fault="stopped for {duration}: rank {rank}",
            target="target <= 10 s past the watchdog", recover_seconds=10.0, past_detection=True, seconds=5.0,
        ),
        DrillKind(
            name="hang-rank", row="T4", text="a rank hangs with its process alive; the watchdog ends it",
            fault="rank {rank} hangs",
            target="target: found in 2 x its step + 10 s",
        ),
        DrillKind(
            name="slow-rank", row="T3", text="a rank gets half of its time for a while; it is named, nothing restarts",
            fault="rank {rank} at half speed for {duration}",
            target="target: named in 60 s", seconds=30.0, stalls=False,
        ),
        DrillKind(
            name="stop", row="K4", text="SIGTERM to a rank; all save together and leave, the gang resumes from there",
            fault="SIGTERM to rank {rank}",
            target="target: no step lost, nothing charged",
        ),
        DrillKind(
            name="resize", row="T7", text="another number of ranks, one that the plan is ready for",
            fault="resize to {ranks} requested",
            target="target: no sample lost or taken twice, nothing charged",
        ),
        DrillKind(
            name="poison", row="T9", text="a batch is not finite; the gang stops, skips or goes back as its line says",
            fault="a batch of rank {rank} is not finite",
            target="target: judged in that step, nothing of it saved", stalls=False, setup="task",
        ),
        DrillKind(
            name="oom", row="T8", text="a rank gets no more memory; the gang ends for this reason, without retry",
            fault="rank {rank} gets no more memory",
            target="target: class 32, no restart charged", stalls=False, setup="task",
        ),
        DrillKind(
            name="lose-node", row="T11", text="a virtual node is lost with keeper, ranks and memory, and replaced",
            fault="the node of rank {rank} is gone, a new one starts",
            target="target <= 1 interval, one charge", setup="nodes",
        ),
        DrillKind(
            name="kill-store", row="S6", text="the store refuses connections, then answers 503, then is back",
            fault="the store is unavailable for {duration}",
            target="target: saves catch up by themselves", seconds=15.0, stalls=False, setup="store",
        ),
        DrillKind(
            name="slow-store", row="S8", text="every request to the store takes a quarter of a second longer",
            fault="the store is slow for {duration}",
            target="target: saves end, steps as fast as before", seconds=15.0, stalls=False, setup="store",
        ),
        DrillKind(
            name="fill-disk", row="S5", text="writes of checkpoints fail as on a full disk, then there is room",
            fault="no room for checkpoints for {duration}",
            target="target: alarm, durable again once there is room", seconds=10.0, stalls=False, setup="store",
        ),
    )
}  # fmt: skip
_NEEDS = {"drop-api": "a launcher behind the fault proxy"}


def choose_drill(name: str, site: Site) -> DrillKind:
    """The drill called `name`, if this site allows it.

    Raises:
        ConfigError: No such drill, not one that runs here, or the site does not allow it.
    """
    works = ", ".join([*DRILLS, ALL])
    if name in _NEEDS:
        raise ConfigError(f"drill {name} is refused: it needs {_NEEDS[name]}, this run has none; available: {works}")
    if name not in DRILLS:
        raise ConfigError(f"there is no drill {name!r}; available: {works}")
    require_local_target(name, site.launch.target)
    if name not in site.drill.allow and not site.store.url.startswith("file:"):
        raise ConfigError(
            f'drill {name} is refused: the store is shared and the site does not allow it; drill.allow = ["{name}"]'
        )
    return DRILLS[name]


def require_local_target(name: str, target: str) -> None:
    """Raises ConfigError if ranks at `target` cannot be reached by a drill."""
    if not launcher_of(target).is_here:
        raise ConfigError(
            f"drill {name} is refused: it signals processes of this machine, these ranks are on {target}; a site with "
            'launch.target = "local" works, and on a cluster kubectl drain of a server of the run loses a node'
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillTarget:
    """Where and when a fault is injected."""

    kind: DrillKind
    rank: int
    step: int
    seconds: float | None
    """Duration of a lasting fault."""
    ranks: int
    """World size after it."""

    @property
    def fault(self) -> str:
        """Phrase on the fault and its target."""
        duration = format_seconds(self.seconds) if self.seconds is not None else ""
        ranks = f"{self.ranks} {'rank' if self.ranks == 1 else 'ranks'}"
        return self.kind.fault.format(rank=self.rank, duration=duration, ranks=ranks)


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillRequest:
    """A drill with its options; the seed chooses those that are None."""

    kind: DrillKind
    rank: int | None
    step: int | None
    seconds: float | None
    seed: int

    def choose_target(self, plan: Plan) -> DrillTarget:
        """Rank and step of the fault, chosen by the seed between two saves in the middle of the training.

        Raises:
            UsageError: The run has no such rank or step.
            ConfigError: Its plan is not ready for the drill.
        """
        chance = random.Random(self.seed)  # noqa: S311  # a replay must choose alike
        first = plan.world_size // 2 if self.kind.setup == "nodes" else 0  # node 0 leads, and is lost only on request
        rank = self.rank if self.rank is not None else chance.randrange(first, plan.world_size)
        step = self.step if self.step is not None else chance.randint(max(1, plan.steps // 3), max(1, plan.steps // 2))
        if rank >= plan.world_size:
            raise UsageError(f"--rank {rank}: the gang has {plan.world_size} ranks, 0 to {plan.world_size - 1}")
        if not 1 <= step < plan.steps:
            raise UsageError(f"--step {step}: the run has {plan.steps} steps; inject between 1 and {plan.steps - 1}")
        seconds = self.kind.seconds if self.seconds is None or self.kind.seconds is None else self.seconds
        ranks = chance.choice(_elastic_sizes(plan)) if self.kind.name == "resize" else plan.world_size
        if self.step is None:
            step = _step_before_save(step, plan) if self.kind.setup == "store" else _step_between_saves(step, plan)
        return DrillTarget(kind=self.kind, rank=rank, step=step, seconds=seconds, ranks=ranks)


def _step_between_saves(step: int, plan: Plan) -> int:
    """A step half an interval after a save, which is durable by then, so that the gang has something to resume from."""
    every = plan.checkpoint.every
    save = max(1, step // every) * every
    return save + max(1, min(every, plan.steps - save) // 2) if save + 1 < plan.steps else step


def _step_before_save(step: int, plan: Plan) -> int:
    """The step before the next save, so that a save meets the outage."""
    due = -(-(step + 1) // plan.checkpoint.every) * plan.checkpoint.every
    return max(1, min(due, plan.steps) - 1)


def _elastic_sizes(plan: Plan) -> list[int]:
    sizes = [size.mesh.world_size for size in plan.sizes]
    if not sizes:
        raise ConfigError(
            f"drill resize is refused: plan {plan.name} is ready for {plan.world_size} ranks only; "
            f"train.ranks = [1, {plan.world_size + 1}] in line.toml makes the run elastic"
        )
    return sizes

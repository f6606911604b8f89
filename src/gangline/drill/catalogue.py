"""Catalogue of drills by name: what each promises, and which ones a site allows."""

from dataclasses import dataclass
from typing import Literal

from gangline.errors import ConfigError
from gangline.spec.config.site import Site

ALL = "all"
"""Every drill that works here, one after the other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillKind:
    name: str
    row: str
    """Of the goal sheet."""
    text: str
    """What happens."""
    target: str
    """What detection and recovery should take."""
    recover_seconds: float | None = None
    """Of the target; None: it bounds something else, which is a promise."""
    past_detection: bool = False
    """Those seconds begin when the fault is found, not when it strikes."""
    seconds: float | None = None
    """How long it lasts, where nobody says otherwise; None: it is over at once, or lasts until somebody acts."""
    stalls: bool = True
    """Nobody steps meanwhile: the time until the next step is lost."""
    rig: Literal["", "task", "nodes", "store"] = ""
    """What it changes of a gang before that starts: then it takes a run of its own."""


DRILLS: dict[str, DrillKind] = {
    each.name: each
    for each in (
        DrillKind(
            name="kill-rank", row="T1", text="SIGKILL to a rank at a step; its gang resumes from the last checkpoint",
            target="target <= 15 s", recover_seconds=15.0,
        ),
        DrillKind(
            name="kill-twice", row="T2", text="SIGKILL to a rank, and again while the gang starts anew",
            target="target <= 30 s, at most two charges", recover_seconds=30.0,
        ),
        DrillKind(
            name="freeze-rank", row="T3", text="stops a rank and thaws it; a short stop passes, a long one is declared",
            target="target <= 10 s past the watchdog", recover_seconds=10.0, past_detection=True, seconds=5.0,
        ),
        DrillKind(
            name="hang-rank", row="T4", text="a rank stands still for good, its process alive; the watchdog ends it",
            target="target: found in 2 x its step + 10 s",
        ),
        DrillKind(
            name="slow-rank", row="T3", text="a rank gets half of its time for a while; it is named, nothing restarts",
            target="target: named in 60 s", seconds=30.0, stalls=False,
        ),
        DrillKind(
            name="stop", row="K4", text="SIGTERM to a rank; all save together and leave, the gang goes on from there",
            target="target: no step lost, nothing charged",
        ),
        DrillKind(
            name="resize", row="T7", text="another number of ranks, of those the plan is ready for",
            target="target: no sample lost or taken twice, nothing charged",
        ),
        DrillKind(
            name="poison", row="T9", text="a batch is not finite; the gang stops, skips or goes back as its line says",
            target="target: judged in that step, nothing of it saved", stalls=False, rig="task",
        ),
        DrillKind(
            name="oom", row="T8", text="a rank gets no more memory; the gang ends of just that, no blind retry",
            target="target: class 32, no restart charged", stalls=False, rig="task",
        ),
        DrillKind(
            name="lose-node", row="T11", text="a virtual node goes with its keeper, ranks and memory, and is replaced",
            target="target <= 1 interval, one charge", rig="nodes",
        ),
        DrillKind(
            name="kill-store", row="S6", text="nobody answers where the store was, then 503, then it is back",
            target="target: saves catch up by themselves", seconds=15.0, stalls=False, rig="store",
        ),
        DrillKind(
            name="slow-store", row="S8", text="every request to the store takes a quarter of a second longer",
            target="target: saves end, steps as fast as before", seconds=15.0, stalls=False, rig="store",
        ),
        DrillKind(
            name="fill-disk", row="S5", text="no byte more goes into the run's checkpoints, then there is room",
            target="target: alarm, durable again once there is room", seconds=10.0, stalls=False, rig="store",
        ),
    )
}  # fmt: skip
_NEEDS = {"drop-api": "a launcher behind the fault proxy"}


def choose_drill(name: str, site: Site) -> DrillKind:
    """The drill called `name`, where this site allows it.

    Raises:
        ConfigError: No such drill, not one that runs here, or the site does not allow it.
    """
    works = ", ".join([*DRILLS, ALL])
    if name in _NEEDS:
        raise ConfigError(f"drill {name} is refused: it needs {_NEEDS[name]}, this run has none; here works: {works}")
    if name not in DRILLS:
        raise ConfigError(f"there is no drill {name!r}; here works: {works}")
    require_local_target(name, site.launch.target)
    if name not in site.drill.allow and not site.store.url.startswith("file:"):
        raise ConfigError(
            f'drill {name} is refused: the store is shared and the site does not allow it; drill.allow = ["{name}"]'
        )
    return DRILLS[name]


def require_local_target(name: str, target: str) -> None:
    """Raises ConfigError where ranks that run at `target` are out of a drill's reach."""
    if target != "local":
        raise ConfigError(
            f"drill {name} is refused: it strikes processes of this machine, these ranks are on {target}; a site with "
            'launch.target = "local" works, and on a cluster kubectl drain of a server of the run loses a node'
        )

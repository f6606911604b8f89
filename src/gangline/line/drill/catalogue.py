"""The drills by name: what each promises, and which ones a site allows."""

from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.spec.site import Site


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    name: str
    row: str
    """Of the goal sheet."""
    text: str
    """What happens."""
    target: str
    """What recovery should take."""


DRILLS: dict[str, Kind] = {
    each.name: each
    for each in (
        Kind(
            name="kill-rank", row="T1", text="SIGKILL to a rank at a step; its gang resumes from the last checkpoint",
            target="target <= 15 s",
        ),
        Kind(
            name="freeze-rank", row="T3", text="stops a rank and thaws it; a short stop passes, a long one is declared",
            target="target <= 10 s past the watchdog",
        ),
    )
}  # fmt: skip
_NEEDS = {
    "kill-store": "a store server that gangline started, or the fault proxy in front of one",
    "fill-disk": "a checkpoint folder on a file system of its own with a size",
    "drop-api": "a launcher behind the fault proxy",
}


def choose(name: str, site: Site) -> Kind:
    """The drill called `name`, where this site allows it.

    Raises:
        ConfigError: No such drill, not one that runs here, or the site does not allow it.
    """
    works = ", ".join(DRILLS)
    if name in _NEEDS:
        raise ConfigError(f"drill {name} is refused: it needs {_NEEDS[name]}, this run has none; here works: {works}")
    if name not in DRILLS:
        raise ConfigError(f"there is no drill {name!r}; here works: {works}")
    if site.launch.target != "local":
        raise ConfigError(f"drill {name} is refused: it strikes processes of this machine, not {site.launch.target}")
    if name not in site.drill.allow and not site.store.url.startswith("file:"):
        raise ConfigError(
            f'drill {name} is refused: the store is shared and the site does not allow it; drill.allow = ["{name}"]'
        )
    return DRILLS[name]

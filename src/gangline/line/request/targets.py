"""Targets: where ranks run and what drives the stages, from `--target` or the site's `launch.target`."""

from dataclasses import replace
from typing import cast

from gangline.errors import ConfigError, UsageError
from gangline.spec.config.site import Site
from gangline.spec.launchers import LAUNCHERS, TARGETS, Driving, LauncherTraits, RanksAt, Target
from gangline.spec.record import Record


def parse_target(target: str) -> tuple[RanksAt, Driving]:
    """Where ranks run under `target`, and what drives the stages; raises ConfigError for an unknown target."""
    if target not in TARGETS:
        raise ConfigError(f"launch.target: wanted one of {', '.join(TARGETS)}, found {target!r}")
    return TARGETS[target]


def launcher_of(target: str) -> LauncherTraits:
    """What code depends on where ranks run under `target`; raises ConfigError for an unknown target."""
    return LAUNCHERS[parse_target(target)[0]]


def with_target(site: Site, target: str | None) -> Site:
    """`site` with another target, or unchanged for None; raises ConfigError for an unknown target."""
    if target is None:
        return site
    parse_target(target)
    return replace(site, launch=replace(site.launch, target=cast(Target, target)))


def site_of(record: Record, site: Site) -> Site:
    """`site` with the target of the run, which is set when it is created."""
    return replace(site, launch=replace(site.launch, target=record.run.target))


def require_same_target(record: Record, wanted: RanksAt) -> None:
    """Raise UsageError for an open run with another target: its gangs would be searched in the wrong place."""
    if record.run.state == "open" and record.run.target != wanted:
        raise UsageError(
            f"{record.run.id} runs its ranks at {record.run.target}, found --target {wanted}; omit --target to resume"
            f" it, or gangline cancel {record.run.id} and run --again"
        )

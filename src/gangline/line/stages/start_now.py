"""Plan of a gang that could start this minute: on the servers that are free, with the reason of those that wait."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from gangline.errors import CapacityError, ConfigError
from gangline.line.gangs.launchers import open_cluster
from gangline.line.request.targets import launcher_of
from gangline.line.stages.preview import Preview
from gangline.planner.choice import PlanChoice
from gangline.spec.config.site import Site
from gangline.spec.devices import FreeServers, Inventory
from gangline.spec.plan import Candidate


def free_servers(site: Site, environ: Mapping[str, str], inventory: Inventory) -> FreeServers:
    """Free servers of the site's target; those that are in no cluster count as free."""
    if not launcher_of(site.launch.target).has_pods:
        return FreeServers(free=inventory.num_nodes, holders=())
    from gangline.launch.kubernetes.placement.inventory import read_free_servers

    return read_free_servers(open_cluster(site, environ), site.pod, inventory, pool=site.launch.pool)


def choice_now(first: Preview, free: FreeServers, plan_for: Callable[[Inventory], Preview]) -> PlanChoice:
    """The choice among plans that start on `free` servers; those that need more come after it, as `no_servers`.

    Args:
        first: As planned for all servers.
        free: Now.
        plan_for: Plans once more, for other devices.

    Raises:
        CapacityError: No server is free, or no plan fits on those that are.
    """
    if first.choice.num_nodes <= free.free:
        return first.choice
    if not free.free:
        raise CapacityError(
            f"plan --now: wanted {first.choice.num_nodes} servers for {first.choice.name}, found none free; "
            f"{_held(free)}; without --now the plan waits for them"
        )
    try:
        choice = plan_for(replace(first.inventory, num_nodes=free.free)).choice
    except ConfigError as error:
        raise CapacityError(
            f"plan --now: wanted a plan for the {free.free} servers that are free, found none: {error}; {_held(free)}"
        ) from error
    waiting = tuple(_waits(each, free) for each in first.choice.candidates if each.verdict in ("chosen", "runner_up"))
    return replace(choice, candidates=(choice.candidates[0], *waiting, *choice.candidates[1:]))


def _waits(candidate: Candidate, free: FreeServers) -> Candidate:
    reason = f"{candidate.mesh.world_size} ranks: {free.free} servers are free now; {_held(free)}"
    return replace(candidate, verdict="no_servers", reason=reason)


def _held(free: FreeServers) -> str:
    return f"{', '.join(free.holders)} hold others" if free.holders else "no run that this user may see holds them"

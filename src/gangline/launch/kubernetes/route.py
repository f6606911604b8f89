"""Who starts a gang whole, and what its objects say to whoever it is."""

from gangline.errors import ConfigError
from gangline.launch.kubernetes.api.facts import Facts
from gangline.launch.kubernetes.objects.setting import Route
from gangline.spec.podset import PodSet
from gangline.spec.site import LaunchTable


def choose_route(podset: PodSet, launch: LaunchTable, facts: Facts) -> Route:
    """The site's word, else what the cluster can do: several pods are never left to the plain scheduler.

    Raises:
        ConfigError: The site wants Kueue or one of its queues, and the cluster has none.
    """
    if launch.route == "kueue" and not facts.kueue:
        raise ConfigError('launch.route: wanted "kueue", found no Kueue on this cluster; use "gates" or "auto"')
    if launch.route != "auto":
        return launch.route
    if podset.queue and not facts.kueue:
        raise ConfigError(
            f"launch.queue: wanted queue {podset.queue}, found no Kueue on this cluster, so nobody serves queues; leave"
            " launch.queue out and our placer starts gangs whole"
        )
    if podset.queue or (facts.topologies and facts.queues):
        return "kueue"
    return "gates" if podset.num_nodes > 1 else "none"

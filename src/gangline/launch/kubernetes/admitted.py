"""What a follower learns of a gang that Kueue starts: where its pods go, and whether a quota counts them there."""

import time
from collections.abc import Iterable

from gangline.launch.kubernetes.api.facts import Facts
from gangline.launch.kubernetes.api.protocol import Api, Object
from gangline.launch.kubernetes.placing.workload import (
    assignment,
    is_admitted,
    is_queued,
    off_flavor,
    read_flavor_labels,
    read_workload,
)
from gangline.launch.kubernetes.roots import Root

LOOK_SECONDS = 3.0
"""How often Kueue is asked, while there is something to learn."""


class Admitted:
    """One gang's admission, and the next one after it was put back."""

    def __init__(self, api: Api, *, facts: Facts) -> None:
        self.servers: tuple[str, ...] = ()
        """As Kueue assigned them, in node-rank order; empty where it assigns none."""
        self.wrong = ""
        """Why the gang may not go on."""
        self._api, self._facts = api, facts
        self._looked = float("-inf")
        self._checked: set[str] = set()

    def is_due(self, root: Root, pods: Iterable[Object]) -> bool:
        """Some pod of an admitted gang was not looked at yet."""
        if not is_queued(root) or time.monotonic() - self._looked < LOOK_SECONDS:
            return False
        return not root.is_suspended and any(_uid(pod) not in self._checked for pod in pods)

    def look(self, root: Root, pods: list[Object]) -> None:
        """Raises `Denied` where this account may not read flavors: the servers are known even so."""
        self._looked = time.monotonic()
        workload = read_workload(self._api, root, self._facts)
        if workload is None or not is_admitted(workload):
            return
        placement = assignment(workload)
        self.servers = tuple(each.name for each in placement.servers) if placement else ()
        self.wrong = off_flavor(pods, read_flavor_labels(self._api, workload, self._facts))
        self._checked |= {_uid(pod) for pod in pods}


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])

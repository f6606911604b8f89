"""The pods of one gang by node rank, as the placer sees them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gangline.launch.kubernetes.api import Object
from gangline.launch.kubernetes.pods import node_rank, phase
from gangline.launch.kubernetes.servers import is_over
from gangline.launch.kubernetes.setting import PLACEMENT_GATE


@dataclass(frozen=True, slots=True)
class GangPods:
    living: dict[int, Object] = field(default_factory=dict)
    """Neither ended nor being deleted."""
    succeeded: frozenset[int] = frozenset()

    @property
    def gated(self) -> dict[int, Object]:
        return {rank: pod for rank, pod in self.living.items() if is_gated(pod)}

    @property
    def unbound(self) -> dict[int, Object]:
        """Released, but on no server yet."""
        return {rank: pod for rank, pod in self.living.items() if not is_gated(pod) and not is_bound(pod)}

    def missing(self, num_pods: int) -> int:
        return num_pods - len(self.living.keys() | self.succeeded)


def by_rank(pods: Iterable[Object], num_pods: int) -> GangPods:
    """Those of the ranks below `num_pods`: what else bears the gang's label is none of it."""
    found = [pod for pod in pods if node_rank(pod) < num_pods]
    living = {node_rank(pod): pod for pod in found if is_living(pod)}
    return GangPods(living, frozenset(node_rank(pod) for pod in found if phase(pod) == "Succeeded"))


def is_living(pod: Object) -> bool:
    return not is_over(pod) and pod["metadata"].get("deletionTimestamp") is None


def is_bound(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName"))


def is_gated(pod: Object) -> bool:
    return any(gate.get("name") == PLACEMENT_GATE for gate in pod["spec"].get("schedulingGates") or ())

"""The pods of one gang by node rank, as the placer sees them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gangline.launch.kubernetes.api.protocol import Object
from gangline.launch.kubernetes.objects.setting import PLACEMENT_GATE
from gangline.launch.kubernetes.pods import is_living, node_rank, phase, true_condition


@dataclass(frozen=True, slots=True)
class GangPods:
    living: dict[int, Object] = field(default_factory=dict)
    succeeded: frozenset[int] = frozenset()

    @property
    def gated(self) -> dict[int, Object]:
        return {rank: pod for rank, pod in self.living.items() if is_gated(pod)}

    @property
    def unbound(self) -> dict[int, Object]:
        """Released, but on no server yet."""
        return {rank: pod for rank, pod in self.living.items() if not is_gated(pod) and not is_bound(pod)}

    @property
    def were_let_go(self) -> bool:
        """Some gates are open; they open only once all pods exist."""
        return len(self.gated) < len(self.living)

    @property
    def replacements(self) -> frozenset[int]:
        """Made after another was bound, hence after all gates were open. By the cluster's own clock."""
        first = min((time for pod in self.living.values() if (time := _bound_at(pod))), default=None)
        made = {rank: pod["metadata"].get("creationTimestamp", "") for rank, pod in self.living.items()}
        return frozenset(rank for rank, time in made.items() if first is not None and time > first)

    def missing(self, num_pods: int) -> int:
        return num_pods - len(self.living.keys() | self.succeeded)


def by_rank(pods: Iterable[Object], num_pods: int) -> GangPods:
    """Those of the ranks below `num_pods`: what else bears the gang's label is none of it."""
    found = [pod for pod in pods if node_rank(pod) < num_pods]
    living = {node_rank(pod): pod for pod in found if is_living(pod)}
    return GangPods(living, frozenset(node_rank(pod) for pod in found if phase(pod) == "Succeeded"))


def is_bound(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName"))


def is_gated(pod: Object) -> bool:
    return any(gate.get("name") == PLACEMENT_GATE for gate in pod["spec"].get("schedulingGates") or ())


def _bound_at(pod: Object) -> str | None:
    bound = true_condition(pod, "PodScheduled") if is_bound(pod) else None
    return bound.get("lastTransitionTime") if bound else None

"""What a cluster serves, as far as rendering and routing depend on it; read once a driver, or from a file."""

from dataclasses import dataclass, field
from typing import Literal

TrainerSpelling = Literal["podSpecOverrides", "podTemplateOverrides", "runtimePatches"]
"""How a TrainJob says wishes for its pods: Trainer 2.0, 2.1, 2.2 and later."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    schema: int = 1
    version: str = ""
    """Of the server, as `1.34`."""
    served: tuple[str, ...] = ()
    """Resources by `group/version/plural`, core ones as `v1/pods`."""
    trainer: TrainerSpelling | None = None
    """None: no TrainJob is served."""
    trainer_num_proc_is_integer: bool = False
    topologies: tuple[str, ...] = ()
    """Kueue's Topology objects; some: route B."""
    queues: dict[str, str] = field(default_factory=dict)
    """LocalQueue of the namespace to its ClusterQueue."""
    placer: bool = False
    """A placer holds its Lease."""
    priority_classes: tuple[str, ...] = ()
    """Names of the cluster's PriorityClasses; only these are asked for."""
    api_addresses: tuple[str, ...] = ()
    """Of the API server, as pods see it; a gang reaches none of them, whatever its store's address."""

    @property
    def kueue(self) -> bool:
        return any(each.startswith("kueue.x-k8s.io/") for each in self.served)

    @property
    def jobset(self) -> bool:
        return any(each.startswith("jobset.x-k8s.io/") for each in self.served)

"""Why a gang waits, in one sentence. `evidence` reads the cluster; the rest is pure: objects to `WaitingReason`."""

from gangline.launch.kubernetes.waiting.explain import explain
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason

__all__ = ["Snapshot", "WaitingReason", "explain"]

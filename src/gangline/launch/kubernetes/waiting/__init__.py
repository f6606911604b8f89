"""Explains in one sentence why a gang waits. `evidence` reads the cluster; all other modules do no I/O."""

from gangline.launch.kubernetes.waiting.explain import explain
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, WaitingReason

__all__ = ["Snapshot", "WaitingReason", "explain"]

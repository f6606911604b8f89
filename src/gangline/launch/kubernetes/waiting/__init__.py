"""Why a gang waits, in one sentence: objects of the cluster in, `Waiting` out. Nothing here asks the cluster."""

from gangline.launch.kubernetes.waiting.explain import explain
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, Waiting

__all__ = ["Snapshot", "Waiting", "explain"]

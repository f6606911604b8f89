"""Model code that runs once, in a pod of the cluster: what it is given, its Job, and how the answer comes back."""

from gangline.launch.kubernetes.once.runner import PodRunner, Whose

__all__ = ["PodRunner", "Whose"]

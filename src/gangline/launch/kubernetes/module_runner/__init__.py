"""Runs one module of model code in a pod of the cluster: its input, its Job, and its result."""

from gangline.launch.kubernetes.module_runner.pod_runner import OwningRun, PodRunner

__all__ = ["OwningRun", "PodRunner"]

"""Pipelines of Kubeflow Pipelines, one a file: wiring of components, nothing else."""

"""PodSets become processes, Kubernetes objects or Slurm jobs, behind one protocol."""

"""PodSets become processes or Kubernetes objects, behind one protocol; for Slurm there are files."""

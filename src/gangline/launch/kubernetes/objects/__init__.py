"""A PodSet as Kubernetes objects, and whether they are allowed. Pure: dictionaries in and out."""

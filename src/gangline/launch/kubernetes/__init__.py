"""Gangs as Kubernetes objects: Indexed Jobs, TrainJobs, JobSets, with what belongs to them."""

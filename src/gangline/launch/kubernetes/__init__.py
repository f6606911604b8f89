"""Gangs as Kubernetes objects: Indexed Jobs, TrainJobs, JobSets, with what belongs to them.

launcher    what `line` sees; its parts stand beside it: submit, follow, stop, closing, sweep
waiting/    why a gang waits, in one sentence; pure
objects/    a PodSet as objects, and whether they are allowed; pure
placing/    who starts a gang whole: servers, ledger, placer, Kueue
api/        the API server: its client, lists kept by watching, what it serves, rights
"""

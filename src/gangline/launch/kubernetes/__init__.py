"""Gangs as Kubernetes objects: Indexed Jobs, TrainJobs and JobSets, with what belongs to them.

    launcher        `KubernetesLauncher`, what `line` sees
    admission_check whether the namespace is protected against its drivers
    module_runner   one module of model code in one pod
    follow/         events and logs of a running gang
    lifecycle/      submit, cancel, sweep; the final state of a gang
    waiting/        why a gang waits, in one sentence
    placement/      which servers a gang gets: ledger, placer, Kueue
    state/          what the root and the pods of a gang say
    objects/        a PodSet as objects, and whether they are allowed
    cluster/        what a cluster serves and what an account may do
    client/         the API server: requests, watches, cached lists

Imports point down this list.
"""

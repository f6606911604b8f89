"""One run of one line: its request, its gangs, its results, its record, and the stages that make it.

    stages/   the ten stages, their execution, and the calls that drive a run: `run_line`, `run_stage`, `resolve_run`
    run/      creation, lease, driver, cancellation, superseding, sweeping, watching
    results/  what a gang left: loss curve, training summary, rank times, ledger, noise band, artifacts
    gangs/    from a plan to a PodSet, its launcher, its attempts and its end
    request/  what a run is asked for: commit, effective line, rights, target; look-up by name, reuse of stages
    record/   the record: storage, states, size, listing; the context that stages get

Imports point down this list.
"""

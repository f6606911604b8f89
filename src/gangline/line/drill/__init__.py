"""Rehearsals: a fault injected on purpose, with detection and recovery measured from what was recorded.

    run.drill(name, record, *, launcher, home, store, site, rank=None, step=None, seconds=None, seed=1, tell=print)
        -> DrillReport
    DrillReport.drill: spec.record.Drill, for `Record.drills`; `.lines`: what was printed; `.exit_code`: 0 held, 60
    broken, 10 refused or not struck; `with_drill(record, drill) -> Record` is the pure change for the record's store.

`home` is the gang's folder on this machine (`.gangline/gangs/<name>`); the run must be the caller's own and training.
"""

"""Drills: a fault injected on purpose, with detection and recovery measured from what was recorded.

    run.drill(name, *, repo, site, environ, run=None, rank=None, step=None, seconds=None, seed=1, tell=print)
        -> DrillReport
            `name` is one of `catalogue.DRILLS`; without `run` a fresh run of HEAD is started and driven to its end;
            `tell` gets each line once it is known. Raises ConfigError (10) if the drill is refused.
    run.drill_all(*, repo, site, environ, seed=1, tell=print) -> DrillReports
            all drills, each in a fresh run, with a table at the end; a refused drill is listed as skipped
    DrillReport: `.drill` (spec.record.Drill, already in the record), `.run`, `.lines`, `.replay`, `.exit_code`:
            0 held, 60 broken, 10 not injected
    catalogue.DRILLS: name -> DrillKind(name, row, text, target, seconds, stalls)

`setup` applies the faults, `evaluate` knows what each drill promises, `history` reads what was recorded.

The run must be the caller's own, train on this machine, and the site must allow the drill (`drill.allow`; with a
store in a local folder all are allowed). A drilled run stays a candidate: it is never published.
"""

"""The stages, their order, the record, and everything that may happen to a run.

What callers use (command line, components, hooks); `environ` is read by them and handed in, for secret references:

    run.run_line(repo, *, site, environ, commit=None, overrides=(), again=False, strategy=None, start=None, until=None,
                 target=None, observer=Silent()) -> Record      all stages, or resume; raises what its run ended with
    run_stage.run_stage(repo, name, run, *, site, environ, observer=Silent(), max_seconds=None) -> Record
    preview.preview(repo, *, site, environ, commit=None, overrides=(), strategy=None) -> Preview     launches nothing
    watch.follow_run(repo, run, *, site, environ, observer, poll_seconds=1.0) -> Record    watches another driver's run
    cancel.cancel_run(repo, run, *, site, environ, reason, save=True, observer=Silent()) -> Record
    sweep.sweep(repo, *, site, environ, dry_run=False) -> list[Swept]
    runs.open_site_store(repo, site, environ) -> ObjectStore
    runs.find_run(store, run) -> Record                          by id or unique beginning
    runs.list_runs(store, *, project=None, commit=None) -> Iterator[Record]
    runs.records_of(store, record) -> RecordStore                `.change(pure Record -> Record)`
    launchers.open_launcher(repo, *, site, environ, store, target=None) -> Launcher             logs, drills
"""

"""Kubeflow Pipelines as the driver of a run: its stages from plan to report are components that call them one by one.

The only room that imports `kfp`, and only in child processes or inside functions: it is heavy, and a process holds
one configuration of its local runner.

    driver.drive(repo, *, driving, site, environ, ...) -> Record         as line.run.run_line
    compiler.compile_line(root, image, ...) -> bytes                     equal bytes for equal sources
    cancel.cancel_kfp_run(repo, run, *, site, environ, ...) -> Record    the pipeline run is stopped before the gang
    run_stage.run_stage(name, *, run, config, outputs) -> StageOutputs   what every component calls
"""

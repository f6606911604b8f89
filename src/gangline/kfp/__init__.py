"""Kubeflow Pipelines as the driver of a run: each stage from plan to report is a component that calls it.

Only this room imports `kfp`, in child processes or inside functions, because the import is slow and a process has
one configuration of the local runner.

    driver.drive(repo, *, driving, site, environ, ...) -> Record         as line.run.run_line
    compiler.compile_line(root, image, ...) -> bytes                     equal bytes for equal sources
    server_runner.cancel_kfp_run(repo, run, *, site, ...) -> Record      the pipeline run is stopped before the gang
    run_stage.run_stage(name, *, run, config, outputs) -> StageOutputs   what every component calls
"""

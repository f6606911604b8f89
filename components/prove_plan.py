"""Pipeline step that trains again under a second plan."""

from typing import NamedTuple

from kfp import dsl

from components.base import PYTHON


@dsl.component(base_image=PYTHON, install_kfp_package=False)
def prove(
    run: str,
    config: str,
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple("Ended", [("run", str), ("taken", bool)]):
    """Open the checkpoint of `run` under a second plan, compare every tensor and replay some steps."""
    from gangline.kfp.run_stage import run_stage

    return run_stage("prove", run=run, config=config, outputs={"metrics": metrics})

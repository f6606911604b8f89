"""Pipeline step that measures on held-out data."""

from typing import NamedTuple

from kfp import dsl

from components.base import PYTHON


@dsl.component(base_image=PYTHON, install_kfp_package=False)
def evaluate(
    run: str,
    config: str,
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple("Ended", [("run", str), ("taken", bool)]):
    """Measure the checkpoint of `run` on held-out data, with a band where the line asks for several seeds."""
    from gangline.kfp.run_stage import run_stage

    return run_stage("evaluate", run=run, config=config, outputs={"metrics": metrics})

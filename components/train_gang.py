"""Pipeline step that follows one training gang to its end."""

from typing import NamedTuple

from kfp import dsl

from components.base import PYTHON


@dsl.component(base_image=PYTHON, install_kfp_package=False)
def train(
    run: str,
    config: str,
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple("Ended", [("run", str), ("taken", bool)]):
    """Follow the gang of `run` to its end; a retried step rejoins it by the run's name."""
    from gangline.kfp.run_stage import run_stage

    return run_stage("train", run=run, config=config, outputs={"metrics": metrics})

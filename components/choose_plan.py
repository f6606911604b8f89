"""Pipeline step that chooses how to train."""

from typing import NamedTuple

from kfp import dsl

from components.base import PYTHON


@dsl.component(base_image=PYTHON, install_kfp_package=False)
def plan(
    run: str,
    config: str,
    metrics: dsl.Output[dsl.Metrics],
    verdict: dsl.Output[dsl.Markdown],
) -> NamedTuple("Ended", [("run", str), ("taken", bool)]):
    """Choose how to train on what is there, say why, and hold the budget before anything is started."""
    from gangline.kfp.run_stage import run_stage

    return run_stage("plan", run=run, config=config, outputs={"metrics": metrics, "verdict": verdict})

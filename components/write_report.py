"""Pipeline step that comes last, whatever happened before it."""

from typing import NamedTuple

from kfp import dsl

from components.base import PYTHON


@dsl.component(base_image=PYTHON, install_kfp_package=False)
def report(
    run: str,
    config: str,
    metrics: dsl.Output[dsl.Metrics],
    page: dsl.Output[dsl.HTML],
    verdict: dsl.Output[dsl.Markdown],
) -> NamedTuple("Ended", [("run", str), ("taken", bool)]):
    """Give `run` its last word: report and verdict, also after a step that failed."""
    from gangline.kfp.run_stage import run_stage

    return run_stage("report", run=run, config=config, outputs={"metrics": metrics, "page": page, "verdict": verdict})

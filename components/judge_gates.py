"""Pipeline step that lets a run pass, or not."""

from typing import NamedTuple

from kfp import dsl

from components.base import PYTHON


@dsl.component(base_image=PYTHON, install_kfp_package=False)
def gate(
    run: str,
    config: str,
    verdict: dsl.Output[dsl.Markdown],
) -> NamedTuple("Ended", [("run", str), ("taken", bool)]):
    """Judge quality, budget and reproducibility of `run`; a gate that says no fails this step."""
    from gangline.kfp.run_stage import run_stage

    return run_stage("gate", run=run, config=config, outputs={"verdict": verdict})

"""Pipeline step that starts the training gang."""

from typing import NamedTuple

from kfp import dsl

from components.base import PYTHON


@dsl.component(base_image=PYTHON, install_kfp_package=False)
def submit(run: str, config: str) -> NamedTuple("Ended", [("run", str), ("taken", bool)]):
    """Create the training gang of `run`, or adopt what a lost pod of this step left."""
    from gangline.kfp.run_stage import run_stage

    return run_stage("submit", run=run, config=config)

"""Pipeline step that makes a signed model version."""

from typing import NamedTuple

from kfp import dsl

from components.base import PYTHON


@dsl.component(base_image=PYTHON, install_kfp_package=False)
def publish(
    run: str,
    config: str,
    model: dsl.Output[dsl.Model],
) -> NamedTuple("Ended", [("run", str), ("taken", bool)]):
    """Publish the checkpoint of `run` as a signed version, where the line's rules let it."""
    from gangline.kfp.run_stage import run_stage

    return run_stage("publish", run=run, config=config, outputs={"model": model})

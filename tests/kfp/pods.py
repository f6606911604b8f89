"""Tasks of a pipelines server, run here as pods would run them: from what travels through the store."""

import contextlib

from tests.kfp import stub as pipelines
from tests.line import repositories

from gangline.kfp.driver import drive
from gangline.kfp.run_stage import run_stage
from gangline.spec.record import STAGES

IMAGE = "registry.example/gangline/line@sha256:" + "a1" * 32


class Pods(pipelines.Stub):
    """Runs each stage as its component would; `lose` names stages whose first pod is lost after its work."""

    def __init__(self):
        super().__init__(self.take_through)
        self.lose = set()

    def take_through(self, row):
        parameters = row["runtime_config"]["parameters"]
        try:
            for name in STAGES[2:-1]:
                for _ in range(2 if name in self.lose else 1):
                    run_stage(name, run=parameters["run"], config=parameters["config"])
        except SystemExit:
            return "FAILED"
        finally:
            self.quietly("report", parameters)
        return "SUCCEEDED"

    def quietly(self, name, parameters):
        with contextlib.suppress(SystemExit):
            run_stage(name, run=parameters["run"], config=parameters["config"])


def server_run(workspace, **asked):
    repositories.settle_inventory(
        workspace.repo, **{key: asked[key] for key in ("commit", "overrides") if key in asked}
    )
    workspace.seen.__init__()
    return drive(workspace.repo, driving="kfp", ranks_at="local", **workspace.where, observer=workspace.seen, **asked)

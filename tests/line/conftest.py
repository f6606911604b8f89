"""A workspace to drive lines from: a repository, a site of its own, an observer that remembers."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.line import repositories

from gangline.line.record.observer import SilentObserver
from gangline.line.record.runs import find_run, list_runs
from gangline.line.stages.run_line import run_line
from gangline.line.stages.run_stage import run_stage
from gangline.signing.record_seal import Sealer
from gangline.spec.config.site import Site
from gangline.storage.site_paths import open_site_store


class Remembers(SilentObserver):
    """Keeps what it is told."""

    def __init__(self):
        self.ended, self.notes, self.stages = [], [], []

    def stage_ended(self, name, info):
        self.stages.append(name)
        self.ended.append((name, info.state))

    def note(self, text):
        self.notes.append(text)


@dataclass
class Workspace:
    repo: Path
    site: Site
    environ: dict[str, str]
    seen: Remembers = field(default_factory=Remembers)
    devices: tuple[dict, ...] = ()
    """Of the machine, as the child process that inspects it says them."""

    @property
    def store(self):
        return open_site_store(self.repo, self.site, self.environ)

    @property
    def sealer(self):
        return Sealer.of(self.site, self.environ)

    @property
    def where(self):
        return {"site": self.site, "environ": self.environ}

    def run(self, **asked):
        """Run the line in a repository whose inventory is settled: no process is started to look around."""
        repositories.settle_inventory(
            self.repo, self.devices, **{key: asked[key] for key in ("commit", "overrides") if key in asked}
        )
        self.seen = Remembers()
        return run_line(self.repo, **self.where, observer=self.seen, **asked)

    def stage(self, name, run, **asked):
        self.seen = Remembers()
        return run_stage(self.repo, name, run, **self.where, observer=self.seen, **asked)

    def records(self):
        return list(list_runs(self.store))

    def record(self, run):
        return find_run(self.store, run)


@pytest.fixture
def workspace(tmp_path):
    repo = repositories.make_repository(tmp_path / "repo")
    return Workspace(repo, Site(), {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")})

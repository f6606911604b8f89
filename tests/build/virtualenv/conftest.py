"""Environments made by the real uv from wheels that tests make, without a network; one is shared by those who read."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.build.wheels import lock_of, make_wheel
from tests.line import repositories

from gangline.build.virtualenv import Uv, VirtualEnvironment, make_environment, read_commit_lock, request_environment
from gangline.git.repository import Repository
from gangline.spec.config.line import EnvTable
from gangline.spec.config.site import Site
from gangline.spec.config.site_tables import EnvironmentsTable

SPAM = make_wheel("spam", "1.0", body="def main(): print('spam')\n", script=True)
EGGS = make_wheel("eggs", "2.0")


@dataclass
class Bench:
    """A folder of wheels, a commit with a lock, a folder of environments; uv asks no index."""

    folder: Path
    root: Path
    said: list[str] = field(default_factory=list)
    site: Site = Site()  # frozen
    environ: dict[str, str] = field(default_factory=lambda: {**os.environ, "UV_OFFLINE": "1"})

    @property
    def wheels(self):
        return self.folder / "wheels"

    def uv(self, *, is_own=True):
        table = EnvironmentsTable(find_links=(str(self.wheels),))
        return Uv.find(self.environ, replace(self.site, environments=table), is_own=is_own)

    def add(self, *wheels):
        self.wheels.mkdir(exist_ok=True)
        for name, data in wheels:
            (self.wheels / name).write_bytes(data)

    def lock(self, files, **table):
        """Of a commit with `files`."""
        repo = repositories.make_repository(self.folder / f"repo-{len(list(self.folder.iterdir()))}", files)
        repository = Repository.at(repo)
        name = next(iter(files))
        return read_commit_lock(repository, repository.tree("HEAD"), EnvTable(lock=name, **table), self.uv())

    def ask(self, lock, **asked):
        if isinstance(lock, bytes):
            lock = self.lock({"requirements.txt": lock.decode()})
        return request_environment(lock, uv=self.uv(), **{"for_task": False, "with_s3": False} | asked)

    def make(self, lock, **asked) -> VirtualEnvironment:
        return make_environment(self.ask(lock, **asked), self.root, uv=self.uv(), notify=self.said.append)

    @property
    def left(self):
        """What lies in the folder of environments, but for files that are held while one is made."""
        return sorted(path.name for path in self.root.glob("*") if path.suffix != ".lock") + sorted(
            path.name for path in self.root.glob(".*")
        )


@pytest.fixture
def bench(tmp_path):
    found = Bench(folder=tmp_path, root=tmp_path / "environments")
    found.add(SPAM, EGGS)
    return found


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """(environment, who made it), for those who change nothing of it."""
    folder = tmp_path_factory.mktemp("made")
    bench = Bench(folder=folder, root=folder / "environments")
    bench.add(SPAM, EGGS)
    return bench.make(lock_of(SPAM, EGGS)), bench

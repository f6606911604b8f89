"""One run that passed and one that is published, made once a session; every test strikes its own copy."""

import shutil
from dataclasses import replace

import pytest
from tests.line.registry.desk import Desk, make_desk

from gangline.storage.local import FolderStore


@pytest.fixture(scope="session")
def passed_template(tmp_path_factory):
    return make_desk(tmp_path_factory.mktemp("passed") / "root")


@pytest.fixture(scope="session")
def published_template(passed_template, tmp_path_factory):
    desk = _copy(passed_template, tmp_path_factory.mktemp("published") / "root")
    return desk, desk.publish()


@pytest.fixture
def desk(passed_template, tmp_path):
    """A run after its gates, nothing published."""
    return _copy(passed_template, tmp_path / "root")


@pytest.fixture
def published(published_template, tmp_path):
    """A desk whose run is `bytegpt 1`, and what `publish` answered."""
    template, answer = published_template
    return _copy(template, tmp_path / "root"), answer


def _copy(template: Desk, root) -> Desk:
    shutil.copytree(template.root, root)
    environ = {"XDG_CONFIG_HOME": str(root / "config"), "HOME": str(root)}
    return replace(template, root=root, repo=root / "repo", store=FolderStore(root / "store"), environ=environ)

"""One run that passed for the whole session, and a fresh copy of it for every test."""

import shutil
from dataclasses import replace

import pytest
from tests.line.registry.desk import make_desk

from gangline.storage.local import FolderStore


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    return make_desk(tmp_path_factory.mktemp("desk") / "root")


@pytest.fixture
def desk(template, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(template.root, root)
    return replace(
        template, root=root, repo=root / "repo", store=FolderStore(root / "store"),
        environ={"XDG_CONFIG_HOME": str(root / "config"), "HOME": str(root)},
    )  # fmt: skip


@pytest.fixture(scope="session")
def published_template(template, tmp_path_factory):
    root = tmp_path_factory.mktemp("published") / "root"
    shutil.copytree(template.root, root)
    desk = replace(
        template, root=root, repo=root / "repo", store=FolderStore(root / "store"),
        environ={"XDG_CONFIG_HOME": str(root / "config"), "HOME": str(root)},
    )  # fmt: skip
    desk.answer = desk.publish()
    return desk

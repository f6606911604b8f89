"""A run that passed, and one that is published: every test strikes its own copy."""

import pytest
from tests.registry.passed_run import copy_of, template


@pytest.fixture
def workspace(tmp_path, tmp_path_factory):
    """A run after its gates, nothing published."""
    return copy_of(template(tmp_path_factory, "passed")[0], tmp_path / "root")


@pytest.fixture
def published(tmp_path, tmp_path_factory):
    """A workspace whose run is `bytegpt 1`, and what `publish` answered."""
    workspace, answer = template(tmp_path_factory, "published")
    return copy_of(workspace, tmp_path / "root"), answer

"""Ranks for tests: one warm parent forks them all, so that a gang starts in a fifth of a second."""

import itertools
import os
import shutil

import pytest
from tests.train.gang import ROOT, Gang, start_warm
from tests.train.weighing import weigher

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def warm(tmp_path_factory):
    parent = start_warm(tmp_path_factory.mktemp("warm"))
    yield parent
    parent.close()


@pytest.fixture(scope="session")
def weight(warm, tmp_path_factory):
    """Function of a plan of `weighing.plan_of`: what its ranks weigh on average."""
    return weigher(warm, lambda: tmp_path_factory.mktemp("weighed"))


@pytest.fixture
def make_gang(warm, tmp_path):
    """Function that gives a fresh gang whose code layer is a copy of `code` (default: the tiny task of the tests)."""
    numbers = itertools.count()

    def make(code=ROOT / "tests" / "train" / "code"):
        home = tmp_path / f"gang-{next(numbers)}"
        copy = shutil.copytree(code, home / "code", ignore=shutil.ignore_patterns("__pycache__"))
        return Gang(home, warm, copy)

    return make

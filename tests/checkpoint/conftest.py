"""Two warm ranks for the whole session, and stores to strike."""

import pytest
from tests.checkpoint.gang import Ranks, run_here

from gangline.storage.folder.store import FolderStore


@pytest.fixture(scope="session")
def ranks(tmp_path_factory):
    gang = Ranks(tmp_path_factory.mktemp("gang"))
    yield gang
    gang.stop()


@pytest.fixture(scope="session")
def run(ranks):
    """`run(layout, **task)`: rank 0's answer, after all ranks said the same of what they share."""

    def run_layout(layout, **task):
        if layout == "one":
            return run_here(layout=layout, **task)
        answers = ranks.run(layout=layout, **task)
        shared = ("opened", "digests", "step", "key", "error")
        assert all(answers[0].get(each) == answers[1].get(each) for each in shared), "ranks disagree"
        return answers[0] | {"both": answers}

    return run_layout


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")

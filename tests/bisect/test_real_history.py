"""A past of twelve commits, really trained: the one that halves the learning rate is named."""

import pytest
from tests.bisect.histories import make_history

from gangline.bisect.bisection import BisectRequest, prepare
from gangline.line.record.observer import SilentObserver
from gangline.line.run.driver import open_run_workspace
from gangline.spec.config.site import Site


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("first_bad", "broken"), [(7, ()), (3, (5,))])
def test_of_twelve_commits_the_one_that_halves_the_learning_rate_is_found(tmp_path, monkeypatch, first_bad, broken):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shas = make_history(tmp_path / "past", first_bad=first_bad, broken=broken)
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    workspace = open_run_workspace(tmp_path / "past", site=Site(), environ=environ, observer=SilentObserver())
    ended = prepare(workspace, BisectRequest(metric="error", good=shas[0], bad=shas[-1], seeds=3)).run(
        tell=lambda _: None
    )
    assert (ended.ending, ended.first_bad) == ("found", shas[first_bad])
    assert {each.side for each in ended.suspects if each.sha in [shas[n] for n in broken]} <= {"skipped"}
    assert sum(each.origin == "trained" for each in ended.suspects) <= 2 + 4

"""FL6: processes of a real federation die at random times; each run ends as an unbroken one does."""

from contextlib import ExitStack

import pytest
from tests.flare.random_kills import Campaign, run_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.row("FL6", full="`python -m tests.flare.random_kills`: 200 kills and cuts at random times; 10 in the test")
def test_runs_end_as_the_unbroken_one_whatever_is_killed(tmp_path_factory, seed):
    pytest.importorskip("nvflare", reason="nvflare is not installed")
    folder = tmp_path_factory.mktemp("federation")
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)
    with ExitStack() as stack:
        kills, problems = run_until(Campaign(folder, stack), 10, seed=seed, done={}, keep=lambda _: None, rounds=16)
    assert problems == []
    assert kills >= 10

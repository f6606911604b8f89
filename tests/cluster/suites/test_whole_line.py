"""One commit of bytegpt through the whole line: on this machine, with pods, and with pods under kfp's local runner.

What drives has the account and the rights of a driver; only the sweep at the end is an administrator's.
"""

import pytest
from tests.cluster.driver import driving
from tests.cluster.rig.wait import await_true
from tests.cluster.workspace import Workspace, short_line, site_of

from gangline.spec.record import STAGES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

OF_THE_PLACE = ("measured", "forecast", "candidates", "reason", "digest", "key")
"""What a plan says of the machines it was made for, and digests over that."""


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    return short_line(tmp_path_factory.mktemp("bytegpt"))


@pytest.fixture(scope="module")
def image(cluster):
    """Of the code as it is now, once for all ways."""
    return cluster.train_image


@pytest.fixture(scope="module")
def account(cluster):
    """Of drivers; it is there until the last run has ended."""
    with driving(cluster):
        yield


@pytest.fixture(scope="module")
def workspace(cluster, account, repo, image, tmp_path_factory):
    """Gives a way a namespace and a store of its own, so that none takes another's results."""
    made = []

    def open_workspace(way):
        made.append(cluster.namespace(f"line-{way}"))
        home = tmp_path_factory.mktemp(f"home-{way}")
        return Workspace(cluster, repo, home, made[-1], site_of(cluster, image, made[-1]))

    yield open_workspace
    for namespace in made:
        if namespace in cluster.namespaces:
            cluster.delete(namespace)


@pytest.fixture(scope="module")
def here(workspace):
    return workspace("here").run("here")


@pytest.mark.parametrize("way", ["pods", "pipeline"])
def test_the_same_commit_gives_the_same_record_wherever_it_runs(cluster, workspace, here, image, way):
    mine = workspace(way)
    assert {"rights", "secrets", "admission"} <= mine.doctor()
    found = mine.run(way)
    demand_same(found, here)
    assert found["inputs"]["image"] == image
    assert found["run"]["driver"]["kind"] == ("kfp" if way == "pipeline" else "run")
    assert found["gang"]["launcher"] == "kubernetes"
    assert len(found["gang"]["servers"]) == 2
    mine.sweep()
    await_true(f"the end of all gangs of {way}", lambda: cluster.leftovers(mine.namespace) == [], seconds=60)


def demand_same(found, here):
    """The record tells of the same run, with the same result."""
    assert [name for name in STAGES if found["stages"][name]["state"] != "done"] == []
    assert found["run"]["id"] == here["run"]["id"]
    assert (found["run"]["verdict"], here["run"]["verdict"]) == ("passed", "passed")
    for name in ("commit", "plan"):
        ours, theirs = (
            {key: each[name][key] for key in each[name] if key not in OF_THE_PLACE} for each in (found, here)
        )
        assert ours == theirs, name
    for name in ("line", "code", "data", "seeds", "values"):
        assert found["inputs"][name] == here["inputs"][name], name
    ours, theirs = found["metrics"]["eval_loss"], here["metrics"]["eval_loss"]
    assert ours["seeds"].keys() == theirs["seeds"].keys()
    assert ours["value"] == pytest.approx(theirs["value"], rel=1e-5)
    assert verdicts(found) == verdicts(here)


def verdicts(record):
    """But for what the place decides: an image is pinned, this interpreter without a lock is not."""
    found = {each["name"]: each["verdict"] for each in record["gates"]}
    assert found.pop("reproducible") == ("yes" if record["inputs"]["image"] else "unknown")
    return found

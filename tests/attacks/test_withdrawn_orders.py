"""C8: an order that is cancelled lets its worker go at every moment, and what git or a driver does for it ends."""

import os
import shutil
import time
from pathlib import Path

import pytest
from tests.attacks.building import building
from tests.attacks.hostile_commits import commit
from tests.line.repositories import LINE, LONG_PROGRAM, git

pytestmark = [pytest.mark.row("C8"), pytest.mark.long]
FILES = {"line.toml": LINE.encode()}
HOLDING = """#!/bin/sh
for each in "$@"; do case "$each" in -*|*=*) ;; *) name=$each; break;; esac; done
who=${HELD_BY_SERVICE:+service}
if [ "$(cat FOLDER/hold 2>/dev/null)" = "${who:-reader} $name" ]; then
    ln -sfn $$ FOLDER/held
    exec sleep 600
fi
exec GIT "$@"
"""
MOMENTS = {
    "asking for the branch": "service ls-remote",
    "fetching": "service fetch",
    "counting the files": "service ls-tree",
    "looking for all objects": "service rev-list",
    "making a repository": "service read-tree",
    "reading the line": "reader cat-file",
    "starting the driver": "service show",
}


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """A service whose git sleeps at the moment that `hold` names."""
    folder = tmp_path_factory.mktemp("held")
    programs = folder / "programs"
    programs.mkdir()
    script = HOLDING.replace("FOLDER", str(folder)).replace("GIT", shutil.which("git"))
    (programs / "git").write_text(script)
    (programs / "git").chmod(0o755)
    os.environ["HELD_BY_SERVICE"] = "1"
    try:
        with building(folder, path=programs) as found, found.client() as client:
            wait_for(lambda: client.get("/api/v1/orders/1").status_code == 200)  # the first sweep asks git, too
            found.wait(1)
            yield found
    finally:
        del os.environ["HELD_BY_SERVICE"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_cancelled_order_lets_its_worker_go_at_every_moment(held, moment):
    branch = moment.replace(" ", "-")
    commit(held.repo, FILES, branch=branch, message=moment)
    (held.folder / "held").unlink(missing_ok=True)
    (held.folder / "hold").write_text(MOMENTS[moment])
    order = held.order(branch)
    pid = wait_for(lambda: (held.folder / "held").is_symlink() and (held.folder / "held").readlink())
    (held.folder / "hold").unlink()
    reported, began = held.cancel(order), time.monotonic()
    assert reported["state"] == "dropped"
    assert reported["note"].endswith("enough")
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), seconds=8)
    commit(held.repo, {"README": moment.encode()}, branch=f"after-{branch}")
    after = held.wait(held.order(f"after-{branch}"), seconds=30)
    print(f"{moment}: its worker was free after {time.monotonic() - began:.1f} s")
    assert after["note"] == "no line.toml there"
    assert held.state(order)["state"] == "dropped"
    assert held.state(order)["run"] is None


def wait_for(found, *, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (what := found()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return what


def test_a_branch_that_goes_takes_its_order_from_its_worker(held):
    commit(held.repo, FILES, branch="goes")
    (held.folder / "held").unlink(missing_ok=True)
    (held.folder / "hold").write_text(MOMENTS["counting the files"])
    order = held.order("goes")
    wait_for((held.folder / "held").is_symlink)
    (held.folder / "hold").unlink()
    git(held.repo, "branch", "-D", "goes")
    gone = held.wait(held.order("goes"), seconds=30)
    assert "is gone" in gone["note"]
    assert held.state(order)["state"] == "dropped"


def test_cancelling_an_order_that_has_a_run_stops_the_run(held):
    program = {"answer.py": LONG_PROGRAM.encode()}
    commit(held.repo, FILES | program, branch="long")
    order = held.order("long")
    run = wait_for(lambda: held.state(order)["run"])
    assert held.cancel(order)["run"] == run
    done = held.wait(order)
    assert (done["state"], done["note"].split(":")[0]) == ("done", "cancelled")

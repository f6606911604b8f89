"""The launcher of Slurm over commands that answer from a file: what it writes and refuses."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.contracts.launcher.gangs import STEPPER, Stand

from gangline.errors import IntegrityError
from gangline.fabric.topology.inventory import Fabric, Group
from gangline.launch.local.folder import GangFolder
from gangline.launch.sandbox import Sandbox
from gangline.launch.sandbox.engines import Unconfined
from gangline.launch.slurm.launcher import SlurmLauncher
from gangline.launch.slurm.lives import begin_life, earlier_ends, read_life, read_start, values_of
from gangline.spec.config.slurm_table import SlurmTable
from gangline.spec.gang.status import FIRST_GENERATION, GangEnd

_SLURM = """
import json, pathlib, sys
path, command, *words = pathlib.Path(sys.argv[1]), *sys.argv[2:]
slurm = json.loads(path.read_text())
slurm["calls"].append([command, *words])
option = lambda name: next((word.partition("=")[2] for word in words if word.startswith(f"--{name}=")), None)
jobs, said = slurm["jobs"], ""
if slurm["away"]:
    print("Unable to contact slurm controller", file=sys.stderr)
    sys.exit(1)
if command == "sbatch":
    number = str(4711 + len(jobs))
    held = {"state": "PENDING", "reason": "JobHeldUser"}
    jobs[number] = held | {"name": option("job-name"), "comment": option("comment")}
    said = number
elif command == "squeue":
    found = {n: j for n, j in jobs.items() if option("jobs") in (None, n) and option("name") in (None, j["name"])}
    if "--me" in words:
        found = {n: j for n, j in found.items() if j["state"] in ("PENDING", "RUNNING")}
    said = "\\n".join(f"{n}|{j['state']}|{j['reason']}|gpu|normal|N/A||{j['comment']}" for n, j in found.items())
elif command == "scancel" and "--signal=TERM" not in words:
    jobs[words[-1]]["state"] = "CANCELLED"
elif words[:1] == ["release"]:
    jobs[words[1]]["reason"] = "Priority"
path.write_text(json.dumps(slurm))
print(said)
"""


class StubStand(Stand):
    """A launcher and Slurm in a file."""

    fabric = None
    script = _SLURM

    def __init__(self, root):
        self.slurm = root / "slurm.json"
        self.slurm.write_text(json.dumps({"jobs": {}, "calls": [], "away": False}))
        super().__init__(root)

    def again(self):
        via = (sys.executable, "-c", self.script, str(self.slurm))
        secrets = lambda name: f"value of {name}".encode()  # noqa: E731
        table = SlurmTable(shared=str(self.root.parent), via=via, partition="gpu")
        return SlurmLauncher(
            self.root, store=self.store, secrets=secrets, table=table, sandbox=self.sandbox, fabric=self.fabric,
            ask_seconds=0.0,
        )  # fmt: skip

    @property
    def state(self):
        return json.loads(self.slurm.read_text())

    def change(self, **values):
        state = self.state
        jobs = {number: job | values for number, job in state["jobs"].items()}
        self.slurm.write_text(json.dumps(state | {"jobs": jobs, "away": values.get("away", False)}))

    @property
    def folder(self):
        return GangFolder(self.root / "run-1")

    def begin(self, *servers):
        return begin_life(self.folder, job="4711", servers=servers, now=100.0)

    def end(self, node, code=0, **more):
        self.folder.write_inside(f"exit-{node}.json", GangEnd(exit_code=code, retry="never", reason="said", **more))


@pytest.fixture
def stand(tmp_path):
    return StubStand(tmp_path)


def test_job_is_submitted_held_and_released_once_its_number_is_written(stand):
    gang = stand.launcher.submit(stand.podset(STEPPER))
    assert (gang.uid, gang.adopted) == ("4711", False)
    (sbatch,) = [call for call in stand.state["calls"] if call[0] == "sbatch"]
    assert {"--hold", "--partition=gpu", "--nodes=1", "--ntasks=1", "--export=NONE"} <= set(sbatch)
    assert stand.state["jobs"]["4711"]["reason"] == "Priority"
    assert stand.folder.launched().uid == "4711"


def test_second_driver_adopts_the_job_and_one_whose_driver_died_is_taken_up(stand):
    stand.launcher.submit(stand.podset(STEPPER))
    assert stand.again().submit(stand.podset(STEPPER)).adopted
    (stand.folder.home / "launch.json").unlink()
    assert stand.again().submit(stand.podset(STEPPER)).uid == "4711"
    assert len(stand.state["jobs"]) == 1


def test_no_file_but_those_of_secrets_holds_one_and_no_word_of_a_command_does(stand):
    stand.launcher.submit(replace(stand.podset(STEPPER), secrets=("checkpoint-key", "env.HUB_TOKEN")))
    secrets = stand.folder.secrets
    assert {path.stat().st_mode & 0o777 for path in secrets.iterdir()} == {0o600}
    others = [each for each in stand.folder.home.rglob("*") if each.is_file() and each.parent != secrets]
    assert not [path for path in others if b"value of" in path.read_bytes()]
    assert "value of" not in stand.slurm.read_text()
    assert (stand.folder.home / "start.json").stat().st_mode & 0o777 == 0o600
    comments = [job["comment"] for job in stand.state["jobs"].values()]
    assert max(map(len, comments)) < 300


def test_forks_start_nothing(stand):
    stand.sandbox = Sandbox(engine=Unconfined("none here"), trust="fork")
    with pytest.raises(IntegrityError, match="found one of a fork"):
        stand.again().submit(stand.podset(STEPPER))
    assert stand.state["jobs"] == {}
    assert not stand.folder.exists


def test_absent_slurm_is_no_end_of_a_gang(stand):
    stand.launcher.submit(stand.podset(STEPPER))
    stand.change(state="RUNNING")
    assert stand.launcher.status("run-1").state == "starting"
    stand.change(away=True)
    status = stand.launcher.status("run-1")
    assert status.state == "starting"
    assert status.stale_seconds > 0
    assert stand.again().status("run-1").stale_seconds > 0
    stand.end(0)
    assert stand.launcher.status("run-1").state == "ended", "its keeper has said so"


def test_job_that_slurm_has_forgotten_to_have_run_ends_with_its_keepers(stand):
    stand.launcher.submit(stand.podset(STEPPER))
    stand.begin("a1")
    stand.end(0)
    stand.change(state="PENDING", reason="JobHeldUser")
    assert stand.launcher.status("run-1").state == "ended"
    assert stand.launcher.collect("run-1").exit_code == 0
    assert stand.state["jobs"]["4711"]["state"] == "CANCELLED", "it would run once more"


def test_life_that_saved_is_no_end_while_the_job_is_put_back(stand):
    stand.launcher.submit(stand.podset(STEPPER))
    stand.begin("a1")
    stand.end(0, 143, saved_step=7, allocated_seconds=4.0, ledger={"compute": 4.0}, generation=2)
    stand.change(state="RUNNING")
    assert stand.launcher.status("run-1").state == "stopping"
    stand.change(state="PENDING")
    assert stand.launcher.status("run-1").state == "waiting"
    second = stand.begin("a1")
    assert (second.life, second.saved_step, second.spent_seconds) == (2, 7, 2.0)
    assert (stand.folder.inside / FIRST_GENERATION).read_text() == "3", "saves of an older generation are refused"
    assert [[end.exit_code for end in life] for life in earlier_ends(stand.folder)] == [[143]]
    stand.end(0, allocated_seconds=1.0, ledger={"compute": 1.0})
    stand.change(state="COMPLETED")
    end = stand.launcher.collect("run-1")
    assert (end.exit_code, end.restarts, end.allocated_seconds, end.ledger) == (0, 1, 5.0, {"compute": 5.0})


def test_node_ranks_follow_the_groups_of_the_network(stand):
    groups = (Group(name="g1", servers=("a2", "a1")), Group(name="g2", servers=("b1", "b2")))
    stand.fabric = Fabric(groups=groups)
    stand.again().submit(stand.podset(STEPPER, num_nodes=3, procs_per_node=1))
    assert stand.begin("a1", "b1", "a2").servers == ("a2", "a1", "b1")
    stand.change(state="RUNNING")
    status = stand.launcher.status("run-1")
    assert (status.servers, status.placed[0].group) == (("a2", "a1", "b1"), "g1")


def test_commands_are_filled_with_what_the_job_knows(stand):
    stand.launcher.submit(stand.podset(STEPPER, deadline_seconds=50.0, num_nodes=2, procs_per_node=1))
    stand.begin("a1", "a2")
    life, podset = replace(read_life(stand.folder), spent_seconds=20.0), stand.folder.podset()
    command = read_start(stand.folder).commands[1]
    found = command.filled(values_of(life, podset, {"CUDA_VISIBLE_DEVICES": "0,1"})).environ
    assert (found["MASTER_ADDR"], found["GANGLINE_DEADLINE_SECONDS"], found["NODE_RANK"]) == ("a1", "30", "1")
    assert found["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "CUDA_VISIBLE_DEVICES" not in command.filled(values_of(life, podset, {})).environ


def test_job_that_found_no_folder_names_the_key(stand):
    stand.launcher.submit(stand.podset(STEPPER))
    stand.change(state="FAILED")
    assert stand.launcher.status("run-1").state == "ended"
    end = stand.launcher.collect("run-1")
    assert end.exit_code == 10
    assert "slurm.shared" in end.reason


def test_cancelled_in_the_queue_leaves_it(stand):
    stand.launcher.submit(stand.podset(STEPPER))
    stand.launcher.cancel("run-1", reason="no time")
    assert stand.state["jobs"]["4711"]["state"] == "CANCELLED"
    assert stand.launcher.collect("run-1").reason == "cancelled: no time"


def test_gang_whose_driver_died_before_the_release_is_cancelled_too(stand):
    stand.launcher.submit(stand.podset(STEPPER))
    (stand.folder.home / "launch.json").unlink()
    stand.again().cancel("run-1", reason="no time")
    assert stand.state["jobs"]["4711"]["state"] == "CANCELLED"
    assert stand.launcher.submit(stand.podset(STEPPER)).adopted
    assert len(stand.state["jobs"]) == 1


def test_submission_whose_answer_is_lost_is_found_at_once(stand):
    lost = stand.slurm.with_name("lost.py")
    fails = 'if command == "sbatch": print("Socket timed out", file=sys.stderr); sys.exit(1)\n'
    lost.write_text(_SLURM + fails)
    stand.script = f"import runpy; runpy.run_path({str(lost)!r}, run_name='__main__')"
    assert stand.again().submit(stand.podset(STEPPER)).uid == "4711"
    assert len(stand.state["jobs"]) == 1


def test_server_that_lacks_what_the_gang_runs_in_is_named(stand):
    stand.launcher.submit(stand.podset(STEPPER))
    stand.begin("a1")
    start = read_start(stand.folder)
    command = replace(start.commands[0], argv=("/no/such/bwrap",))
    (stand.folder.home / "start.json").write_bytes(replace(start, commands=(command,)).to_json())
    words = [sys.executable, "-m", "gangline.launch.slurm.node", str(stand.folder.home)]
    done = subprocess.run(words, env={**os.environ, "SLURMD_NODENAME": "a1"}, check=False)
    assert done.returncode == 10
    assert "cannot start /no/such/bwrap on a1" in stand.folder.end(0).reason

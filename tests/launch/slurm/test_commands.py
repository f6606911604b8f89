"""Commands of Slurm at the border of the process: words, answers and refusals, by a stand-in."""

import json
import sys

import pytest

from gangline.errors import CapacityError, ConfigError
from gangline.launch.slurm import commands
from gangline.launch.slurm.batch_script import job_options, life_script
from gangline.launch.slurm.commands import SlurmAway, SlurmCommands
from gangline.spec.config.site_tables import SlurmTable

_STUB = """
import json, pathlib, sys
here = pathlib.Path(sys.argv[1])
(here / "words").write_text(json.dumps(sys.argv[2:]))
answer = json.loads((here / "answer").read_text())
print(answer["out"], end="")
print(answer["error"], end="", file=sys.stderr)
sys.exit(answer["code"])
"""


@pytest.fixture
def slurm(tmp_path):
    class Stub:
        commands = SlurmCommands((sys.executable, "-c", _STUB, str(tmp_path)))

        def says(self, out="", *, error="", code=0):
            (tmp_path / "answer").write_text(json.dumps({"out": out, "error": error, "code": code}))

        @property
        def words(self):
            return json.loads((tmp_path / "words").read_text())

    stub = Stub()
    stub.says()
    return stub


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        ("sbatch: error: invalid partition specified: gpu9", ConfigError, "invalid partition specified: gpu9"),
        ("sbatch: error: Invalid account or account/partition combination specified", ConfigError, "Invalid account"),
        ("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy", CapacityError, "run again"),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", SlurmAway, "safe to try again"),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", SlurmAway, "try again"),
        ("ssh: connect to host login1 port 22: Connection refused", SlurmAway, "try again"),
    ],
)  # fmt: skip
def test_refusal_is_an_error_of_its_class_in_slurms_words(error, kind, says, slurm, tmp_path):
    slurm.says(error=error, code=1)
    with pytest.raises(kind, match=says):
        slurm.commands.submit(("--hold",), tmp_path / "job.sbatch")


def test_submission_passes_words_as_they_are_and_reads_the_number(slurm, tmp_path):
    slurm.says("4711;cluster\n")
    script = tmp_path / "it's a $(touch x).sbatch"
    assert slurm.commands.submit(("--comment=a b", "--hold"), script) == "4711"
    assert slurm.words == ["sbatch", "--parsable", "--comment=a b", "--hold", str(script)]


def test_words_for_ssh_are_quoted_for_the_shell_there():
    command = SlurmCommands(("ssh", "login1"))._command(("squeue", "--format=%A|%T"))
    assert command == ["ssh", "login1", "squeue '--format=%A|%T'"]


def test_jobs_are_read_in_the_order_of_their_numbers(slurm):
    slurm.says(
        "10|PENDING|(Resources)|gpu|normal|N/A||gangline x|y\n9|RUNNING|None|gpu|normal|2026-11-29T10:00:00|a[1-2]|c\n"
    )
    first, second = slurm.commands.named("run-1")
    assert (first.number, first.servers) == ("9", "a[1-2]")
    assert (second.number, second.reason, second.starts, second.comment) == ("10", "Resources", "", "gangline x|y")


def test_job_that_is_unknown_is_none(slurm):
    slurm.says(error="slurm_load_jobs error: Invalid job id specified", code=1)
    assert slurm.commands.job("7") is None


@pytest.mark.parametrize("said", ["", "scancel: error: Kill job error on job id 7: Invalid job id specified"])
def test_job_that_is_over_is_stopped_already(said, slurm):
    slurm.says(error=said, code=1)
    slurm.commands.cancel("7")
    slurm.commands.ask_to_stop("7")
    assert slurm.words == ["scancel", "--quiet", "--signal=TERM", "7"]


def test_stop_that_slurm_refuses_is_an_error(slurm):
    slurm.says(error="scancel: error: Kill job error on job id 7: Access/permission denied", code=1)
    with pytest.raises(ConfigError, match="permission denied"):
        slurm.commands.cancel("7")


def test_missing_command_names_the_key_that_helps():
    with pytest.raises(ConfigError, match=r"slurm\.via"):
        SlurmCommands(("/nowhere/ssh-to",)).job("7")


def test_command_that_hangs_is_slurm_away(monkeypatch):
    monkeypatch.setattr(commands, "CALL_SECONDS", 0.2)
    with pytest.raises(SlurmAway, match=r"within 0\.2 s"):
        SlurmCommands((sys.executable, "-c", "import time; time.sleep(60)")).release("7")


def test_job_starts_again_no_sooner_than_slurmd_takes_it(slurm):
    slurm.commands.start_now("7")
    assert slurm.words == ["scontrol", "update", "JobId=7", "StartTime=now+2"]


def test_servers_are_those_of_the_partition_that_are_up(slurm):
    slurm.says(
        "gpu*|3|64|1024|gpu:h100:8(S:0-1)|idle\ngpu*|1|64|1024|gpu:h100:8|drain\ncpu|9|8|512|(null)|mix\n"
        "gpu*|2|64|1024|gpu:8|alloc\n"
    )
    found = slurm.commands.servers(None)
    assert [(each.count, each.gpus, each.gpu_name) for each in found] == [(3, 8, "h100"), (2, 8, "")]
    assert found[0].memory_bytes == 2**30
    assert [each.count for each in slurm.commands.servers("any")] == [3, 9, 2]
    assert "--partition=any" in slurm.words


def test_options_of_the_site_are_words_of_their_own_and_come_last():
    table = SlurmTable(partition="gpu", time_seconds=3601, options=("--reservation=a b",), margin_seconds=90)
    found = job_options(table, name="run-1", num_nodes=9)
    assert {"--nodes=9", "--ntasks=9", "--ntasks-per-node=1", "--time=61", "--signal=TERM@90"} <= set(found)
    assert found[-1] == "--reservation=a b"
    assert not [word for word in found if word.startswith(("--account", "--qos", "--constraint"))]


def test_script_holds_no_value_and_quotes_its_folder(tmp_path):
    folder = tmp_path / "it's $(touch x)"
    script = life_script(SlurmTable(), folder=folder, python="/opt/my python")
    assert "'\"'\"'" in script
    assert script.count("'/opt/my python'") == 2
    assert "secret" not in script

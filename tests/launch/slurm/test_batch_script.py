"""Batch scripts and rank files, run by bash with a stand-in for srun: node ranks are ours, whatever Slurm's are."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.launch.slurm.gangs import GOLDEN, SERVERS, WORDS, drawn, slurm_gang, written
from tests.launch.slurm.slurm_border import JOB, options, run_batch, shuffled

from gangline.errors import ConfigError, UsageError
from gangline.launch.slurm.batch_script import batch_script
from gangline.spec.config.server_ranges import expand_servers

WRITE = """
import json, os, sys
names = ("NODE_RANK", "PET_NODE_RANK", "MASTER_ADDR", "PET_MASTER_ADDR", "WORLD_SIZE", "PET_NNODES", "SLURM_PROCID")
found = {name: os.environ.get(name) for name in names} | {"words": sys.argv[2:]}
with open(os.path.join(sys.argv[1], os.environ["SLURMD_NODENAME"]), "w") as file:
    json.dump(found, file)
"""


def gang_that_writes(folder, servers=SERVERS, *words):
    seen = folder / "seen"
    seen.mkdir()
    launcher = (sys.executable, "-SE", "-c", WRITE, str(seen), *words)
    return slurm_gang(servers, folder=folder, launcher=launcher), seen


def test_files_are_those_of_the_golden_folder():
    assert drawn() == {path.name: path.read_text("utf-8") for path in GOLDEN.iterdir()}, (
        "read the difference; if it is meant: python -m tests.launch.slurm.gangs"
    )


@pytest.mark.parametrize("seed", range(3))
def test_node_ranks_are_ours_in_whatever_order_slurm_numbers_and_starts_them(seed, tmp_path):
    order = shuffled([f"n{number}" for number in range(1, 7)], seed)
    gang, seen = gang_that_writes(tmp_path, [(name, "leaf") for name in order])
    done = run_batch(written(gang), tmp_path, seed=seed)
    assert (done.returncode, done.stderr) == (0, "")
    reported = {path.name: json.loads(path.read_text()) for path in seen.iterdir()}
    assert {name: int(each["NODE_RANK"]) for name, each in reported.items()} == {
        name: rank for rank, name in enumerate(order)
    }
    assert all(each["PET_NODE_RANK"] == each["NODE_RANK"] for each in reported.values())
    assert {name: int(each["SLURM_PROCID"]) for name, each in reported.items()} == {
        f"n{number}": number - 1 for number in range(1, 7)
    }


def test_rendezvous_is_the_server_of_node_rank_zero_for_all(tmp_path):
    gang, seen = gang_that_writes(tmp_path)
    assert run_batch(written(gang), tmp_path).returncode == 0
    for path in seen.iterdir():
        reported = json.loads(path.read_text())
        names = ("MASTER_ADDR", "PET_MASTER_ADDR", "WORLD_SIZE", "PET_NNODES")
        assert [reported[name] for name in names] == ["n3", "n3", "32", "4"]


@pytest.mark.parametrize("own", [None, "8"])
def test_launchers_have_the_variables_of_the_network_but_for_those_of_the_job(own, tmp_path):
    gang = slurm_gang(folder=tmp_path, launcher=("bash", "-c", 'echo "$NCCL_CROSS_NIC $NCCL_IB_QPS_PER_CONNECTION"'))
    script = written(gang)
    assert run_batch(script, tmp_path, NCCL_IB_QPS_PER_CONNECTION=own).returncode == 0
    assert {path.read_text() for path in tmp_path.glob("*.log")} == {f"0 {own or 4}\n"}


def test_words_of_the_launcher_arrive_as_they_are(tmp_path):
    gang, seen = gang_that_writes(tmp_path, SERVERS, *WORDS)
    script = written(gang)
    assert run_batch(script, tmp_path).returncode == 0
    assert [json.loads(path.read_text())["words"] for path in seen.iterdir()] == [WORDS] * 4
    assert options(script.read_text())["nodes"] == "4"


@settings(max_examples=25, deadline=None)
@given(words=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))), min_size=1))
def test_any_launcher_gives_a_script_that_bash_can_parse(words):
    script = batch_script(slurm_gang(launcher=tuple(words)))
    done = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_folder_with_a_blank_and_a_quote_is_found(tmp_path):
    folder = tmp_path / "it's shared"
    folder.mkdir()
    gang, seen = gang_that_writes(folder)
    assert run_batch(written(gang), folder).returncode == 0
    assert len(list(seen.iterdir())) == 4


@pytest.mark.parametrize(
    ("nodes", "differs"),
    [
        (("n1", "n2", "n3", "n9"), ["< n9", "> n4"]),
        (("n1", "n2", "n3"), ["> n4"]),
        (("n1", "n2", "n3", "n4", "n5"), ["< n5"]),
    ],
)
def test_job_with_other_servers_than_the_rank_file_starts_nothing_and_says_which(nodes, differs, tmp_path):
    gang, seen = gang_that_writes(tmp_path)
    done = run_batch(written(gang), tmp_path, nodes=nodes)
    assert done.returncode == ConfigError.exit_code
    assert f"wanted the servers of {gang.ranks}, found others" in done.stderr
    assert [line for line in done.stderr.splitlines() if line[:2] in ("< ", "> ")] == differs
    assert list(seen.iterdir()) == []


def test_job_without_its_rank_file_starts_nothing(tmp_path):
    gang, seen = gang_that_writes(tmp_path)
    script = written(gang)
    (tmp_path / gang.ranks.name).unlink()
    assert run_batch(script, tmp_path).returncode == ConfigError.exit_code
    assert list(seen.iterdir()) == []


def test_each_server_has_a_log_which_a_second_start_of_the_job_continues_with(tmp_path):
    gang = slurm_gang(folder=tmp_path, launcher=("bash", "-c", 'echo "$NODE_RANK"; echo oh >&2'))
    script = written(gang)
    for _ in range(2):
        assert run_batch(script, tmp_path).stdout == f"gangline: what each server prints is in {tmp_path}/{JOB}-*.log\n"
    found = {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    assert found == {f"{JOB}-{name}.log": f"{rank}\noh\n" * 2 for rank, (name, _) in enumerate(SERVERS)}


def test_end_of_srun_is_that_of_the_job(tmp_path):
    gang = slurm_gang(folder=tmp_path, launcher=("bash", "-c", 'exit "$((NODE_RANK == 2 ? 34 : 0))"'))
    assert run_batch(written(gang), tmp_path).returncode == 34


def test_job_has_its_servers_whole_and_one_launcher_on_each():
    found = options(batch_script(slurm_gang()))
    assert set(expand_servers(found["nodelist"])) == {name for name, _ in SERVERS}
    assert (found["nodes"], found["ntasks"], found["ntasks-per-node"]) == ("4", "4", "1")
    assert {"exclusive", "export"} <= found.keys()


def test_another_order_has_another_rank_file():
    assert slurm_gang().ranks != slurm_gang(SERVERS[::-1]).ranks
    assert slurm_gang().ranks == slurm_gang(launcher=("other",)).ranks


@pytest.mark.parametrize(
    "name", ["", "-n1", "n1;reboot", "n1 n2", "n[1-2]", "n1\n#SBATCH --uid=0", "$(id)", "n_1", "a..b"]
)
def test_server_without_the_name_of_a_host_is_refused(name):
    with pytest.raises(ConfigError, match="server: wanted a host name"):
        slurm_gang([(name, "g"), ("n2", "g")])


@pytest.mark.parametrize(("given", "error", "says"), [
    ({"servers": [("n1", "g"), ("n1", "g")]}, ConfigError, "wanted one or more, each once"),
    ({"servers": []}, ConfigError, "wanted one or more, each once"),
    ({"name": "a\n#SBATCH --uid=0"}, UsageError, "name of the job"),
    ({"name": ""}, UsageError, "name of the job"),
    ({"launcher": ()}, UsageError, "launcher: wanted a command"),
    ({"launcher": ("a\0b",)}, UsageError, "launcher: wanted a command"),
])  # fmt: skip
def test_what_makes_no_job_is_refused(given, error, says):
    with pytest.raises(error, match=says):
        slurm_gang(**given)


def test_folder_that_only_this_process_knows_is_refused(tmp_path):
    with pytest.raises(UsageError, match="folder: wanted an absolute path that all servers see, found 'gangs'"):
        slurm_gang(folder=type(tmp_path)("gangs"))

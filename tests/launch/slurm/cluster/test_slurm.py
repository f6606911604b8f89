"""Our batch script under a real Slurm, whose seven servers are network namespaces of this machine."""

import json
import sys
from pathlib import Path

import pytest
from tests.launch.slurm.cluster.configuration import ADDRESSES, CORES, GPUS, LEAVES, SERVERS, SPINES, WAIT_SECONDS
from tests.launch.slurm.gangs import WORDS, slurm_gang, written
from typer.testing import CliRunner

from gangline.cli.main import app
from gangline.errors import ConfigError
from gangline.fabric.topology.inventory import Fabric, Group
from gangline.launch.slurm.batch_script import SCRIPT, choose_servers
from gangline.spec.config.server_ranges import compress_servers, expand_servers
from gangline.spec.gang.podset import Placement

pytestmark = pytest.mark.tools
ORDER = ("b3", "a2", "c1", "a1")
"""Of node ranks, which is no order of names."""
LEAF_OF = {server: leaf for leaf, servers in LEAVES.items() for server in servers}
SPINE_OF = {server: spine for spine, leaves in SPINES.items() for leaf in leaves for server in LEAVES[leaf]}
SAY = ("bash", "-c", "echo node_rank=$NODE_RANK; exec sleep 600")


@pytest.fixture
def cluster(slurm):
    """Idle, and at the end without a process that a job started."""
    yield slurm
    slurm.run("scancel", "--user", "root")
    slurm.until(lambda: not slurm.processes("slurmstepd", "launcher", "sleep 600"))
    slurm.until(lambda: slurm.run("squeue", "--noheader").stdout == "")


def emitted(folder, servers, *launcher, procs=1):
    """Files of a gang in `folder`."""
    folder.mkdir(exist_ok=True)
    placed = [(name, LEAF_OF[name]) for name in servers]
    return written(slurm_gang(placed, folder=folder, launcher=launcher, procs_per_node=procs))


def logs(script, job):
    """What each server printed, by its name."""
    return {path.stem.partition("-")[2]: path.read_text() for path in script.parent.glob(f"{job}-*.log")}


def printed(script, job):
    """What the batch script itself did."""
    return (script.parent / f"slurm-{job}.out").read_text()


FOUND = """
import json, os, socket
names = "NODE_RANK", "PET_NODE_RANK", "SLURM_PROCID", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "OF_THE_SHELL"
found = {name: os.environ.get(name) for name in names}
found |= {"host": socket.gethostname(), "cores": len(os.sched_getaffinity(0))}
print(json.dumps(found | {"master": socket.gethostbyname(os.environ["MASTER_ADDR"])}))
"""


def test_each_launcher_has_its_node_rank_a_whole_server_and_nothing_of_the_shell(cluster, tmp_path):
    script = emitted(tmp_path, ORDER, sys.executable, "-c", FOUND, procs=2)
    job = cluster.submit(script, OF_THE_SHELL="leaks")
    assert cluster.wait(job)["ExitCode"] == "0:0", printed(script, job)
    found = {server: json.loads(text) for server, text in logs(script, job).items()}
    assert {server: each.pop("host") for server, each in found.items()} == {server: server for server in ORDER}
    numbers = {server: each.pop("SLURM_PROCID") for server, each in found.items()}
    assert [numbers[server] for server in sorted(ORDER)] == ["0", "1", "2", "3"]  # Slurm's order, not ours
    devices = ",".join(map(str, range(GPUS)))
    for rank, server in enumerate(ORDER):
        assert found[server] == {
            "NODE_RANK": str(rank), "PET_NODE_RANK": str(rank), "master": ADDRESSES["b3"], "WORLD_SIZE": "8",
            "cores": CORES, "CUDA_VISIBLE_DEVICES": devices, "OF_THE_SHELL": None,
        }  # fmt: skip


REDUCE = """
import os, socket
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
hosts = [None] * size
dist.all_gather_object(hosts, socket.gethostname())
print("RANK", os.environ["RANK"], "sum", int(total), "hosts", *hosts, flush=True)
dist.destroy_process_group()
"""
FABRIC = """
[fabric]
groups = [{ name = "leaf-c", servers = "c2,c1" }, { name = "leaf-b", servers = "b3,b1,b2" }]
"""


def test_torchrun_reduces_over_ranks_in_the_order_of_the_plan(cluster, tmp_path):
    (tmp_path / "fabric.toml").write_text(FABRIC)
    (tmp_path / "reduce.py").write_text(REDUCE)
    order = emit_by_command(tmp_path, nodes=3, per_node=2)
    job = cluster.submit(tmp_path / SCRIPT, OMP_NUM_THREADS="1")
    assert cluster.wait(job, seconds=120)["ExitCode"] == "0:0", logs(tmp_path / SCRIPT, job)
    hosts = [server for server in order for _ in range(2)]
    assert len(set(hosts)) == 3
    for server, text in logs(tmp_path / SCRIPT, job).items():
        own = [str(rank) for rank, host in enumerate(hosts) if host == server]
        said = [line for line in text.splitlines() if line.startswith("RANK")]
        assert sorted(said) == [f"RANK {rank} sum {sum(range(1, 7))} hosts {' '.join(hosts)}" for rank in own]


def emit_by_command(folder, *, nodes, per_node):
    """Servers in node-rank order, as `gangline fabric slurm` chose them for torchrun."""
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    words = ("fabric", "slurm", "--fabric", str(folder / "fabric.toml"), "--out", str(folder), "--nodes", str(nodes))
    launcher = ("--per-node", str(per_node), "--", torchrun, str(folder / "reduce.py"))
    assert CliRunner().invoke(app, [*words, *launcher]).exit_code == 0
    (ranks,) = folder.glob("ranks-*.txt")
    return [line.split()[0] for line in ranks.read_text().splitlines()]


def test_launcher_that_fails_ends_the_others_and_the_job(cluster, tmp_path):
    fails = '[ "$NODE_RANK" != 1 ] || { sleep 4; exit 34; }; trap "echo told; exit 1" TERM; sleep 600 & wait'
    script = emitted(tmp_path, ORDER, "bash", "-c", fails)
    job = cluster.submit(script)
    found = cluster.wait(job, seconds=20)
    assert (found["JobState"], found["ExitCode"]) == ("FAILED", "34:0")
    assert "a2: task 1: Exited with exit code 34" in printed(script, job)
    assert logs(script, job) == {server: "" if server == "a2" else "told\n" for server in ORDER}


def test_launcher_that_ends_well_ends_no_one(cluster, tmp_path):
    longer = f'[ "$NODE_RANK" = 1 ] || sleep {2 * WAIT_SECONDS}; echo ended'
    script = emitted(tmp_path, ORDER, "bash", "-c", longer)
    job = cluster.submit(script)
    assert cluster.wait(job)["ExitCode"] == "0:0"
    assert logs(script, job) == dict.fromkeys(ORDER, "ended\n")


@pytest.mark.parametrize(
    ("servers", "differs"),
    [
        ("a1,a2,b1,b3", ["< b1", "> c1"]),
        ("a1,a2", ["> b3", "> c1"]),
        ("a1,a2,b3,c1,c2", ["< c2"]),
    ],
    ids=["others", "fewer", "more"],
)
def test_job_with_other_servers_starts_nothing_and_says_which(servers, differs, cluster, tmp_path):
    script = emitted(tmp_path, ORDER, *SAY)
    number = servers.count(",") + 1
    job = cluster.submit(script, f"--nodelist={servers}", f"--nodes={number}", f"--ntasks={number}")
    assert cluster.wait(job)["ExitCode"] == f"{ConfigError.exit_code}:0"
    lines = printed(script, job).splitlines()
    assert [line for line in lines if line[0] in "<>"] == differs
    assert "gangline: wanted the servers of " in lines[-2]
    assert logs(script, job) == {}


@pytest.mark.parametrize("heeds", [True, False], ids=["heeds-sigterm", "ignores-sigterm"])
def test_cancelled_gang_leaves_nothing(heeds, cluster, tmp_path):
    script = emitted(tmp_path, ORDER, "bash", "-c", f"{'' if heeds else 'trap : TERM;'} echo up; sleep 600; sleep 600")
    job = cluster.submit(script)
    cluster.until(lambda: logs(script, job) == dict.fromkeys(ORDER, "up\n"))
    cluster.run("scancel", job)
    assert cluster.wait(job)["JobState"] == "CANCELLED"
    cluster.until(lambda: not cluster.processes("slurmstepd", "launcher", "sleep 600"))


def test_job_that_waits_keeps_its_ranks_when_another_order_is_emitted(cluster, tmp_path):
    busy = cluster.submit(emitted(tmp_path / "busy", ("b3",), *SAY))
    cluster.wait(busy, "RUNNING")
    script = emitted(tmp_path, ORDER, "bash", "-c", "echo $NODE_RANK of $MASTER_ADDR")
    first = cluster.submit(script)
    assert emitted(tmp_path, ORDER[::-1], "bash", "-c", "echo $NODE_RANK of $MASTER_ADDR") == script
    second = cluster.submit(script)
    assert {cluster.job(each)["JobState"] for each in (first, second)} == {"PENDING"}
    cluster.run("scancel", busy)
    for job, order in ((first, ORDER), (second, ORDER[::-1])):
        assert cluster.wait(job)["ExitCode"] == "0:0"
        assert logs(script, job) == {server: f"{rank} of {order[0]}\n" for rank, server in enumerate(order)}


def test_folder_and_words_that_a_shell_could_read_are_taken_as_they_are(cluster, tmp_path):
    folder = tmp_path / "it's $(touch x) `id` & ;%j\\"
    script = emitted(folder, ORDER, sys.executable, "-c", "import sys; print(sys.argv[1:])", *WORDS)
    job = cluster.submit(script)
    assert cluster.wait(job)["ExitCode"] == "0:0", printed(script, job)
    assert logs(script, job) == dict.fromkeys(ORDER, f"{WORDS}\n")
    assert {path.suffix for path in folder.iterdir()} == {".sbatch", ".txt", ".log", ".out"}


@pytest.mark.parametrize(
    "names",
    [("n1", "n2", "n10"), ("n009", "n010", "n011"), ("r1n1", "r1n2", "r2n1"), ("gpu-a-1", "gpu-b-1"), ("n1.x", "n2.x")],
    ids=lambda names: names[0],
)
def test_slurm_and_gangline_read_each_others_lists_of_servers(names, cluster):
    assert cluster.run("scontrol", "show", "hostnames", compress_servers(names)).stdout.split() == list(names)
    listed = cluster.run("scontrol", "show", "hostlist", ",".join(names)).stdout.strip()
    assert expand_servers(listed) == names


FABRIC_OF_THE_TREE = Fabric(
    groups=tuple(Group(name=leaf, servers=servers, block=SPINE_OF[servers[0]]) for leaf, servers in LEAVES.items())
)


@pytest.mark.parametrize(("num_nodes", "busy"), [(3, ()), (4, ("b1", "b2"))])
def test_our_choice_touches_no_more_spines_and_leaves_than_slurms_own(num_nodes, busy, cluster, tmp_path):
    if busy:
        cluster.wait(cluster.submit(emitted(tmp_path / "busy", busy, *SAY)), "RUNNING")
    free = [server for server in SERVERS if server not in busy]
    ours = [each.name for each in choose_servers(FABRIC_OF_THE_TREE, num_nodes, Placement(), among=free)]
    (tmp_path / "any").write_text("#!/bin/sh\n")
    job = cluster.submit(tmp_path / "any", "--exclusive", f"--nodes={num_nodes}")
    slurms = expand_servers(cluster.wait(job)["NodeList"])
    assert len(slurms) == num_nodes
    assert touched(ours) <= touched(slurms), (ours, slurms)


def touched(servers):
    """Number of spines, then of leaves."""
    return len({SPINE_OF[each] for each in servers}), len({LEAF_OF[each] for each in servers})

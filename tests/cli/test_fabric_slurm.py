"""`gangline fabric slurm` as it is called: servers of fabric.toml for a number of nodes, or for the plan of a run."""

from dataclasses import replace

import pytest
from tests.line.gangs.test_podsets import plan_of
from tests.report import records

from gangline.errors import ConfigError
from gangline.spec.mesh import Mesh
from gangline.spec.record import StageInfo
from gangline.storage.objects.blobs import put_blob
from gangline.storage.open import open_store

PAGE = """
[fabric]
path_policy = "hash"
connections = 4
groups = [{ name = "g01", servers = "a[1-3]" }, { name = "g02", servers = "b[1-4]" }]
"""
BASE = records.passed()
RUN = f"{BASE.run.project}-{BASE.commit.sha[:8]}-slurm2"


@pytest.fixture
def slurm(gangline, workspace, monkeypatch):
    """Calls the command with the fabric above; the files go to `files` of the repository."""
    (workspace / "fabric.toml").write_text(PAGE)
    monkeypatch.setenv("GANGLINE_FABRIC", str(workspace / "fabric.toml"))
    return lambda *words: gangline("fabric", "slurm", "--out", "files", *words)


def written(workspace):
    script = (workspace / "files" / "job.sbatch").read_text()
    (ranks,) = (workspace / "files").glob("ranks-*.txt")
    return script, [line.split()[0] for line in ranks.read_text().splitlines()], ranks


def planned_run(workspace, mesh, **outputs):
    store, base = open_store(f"file:{workspace / '.gangline' / 'store'}"), BASE
    plan = replace(plan_of(mesh.world_size), mesh=mesh, run=RUN)
    key = put_blob(store, plan.to_json())
    stages = {**base.stages, "plan": StageInfo(state="done", outputs=outputs)}
    record = replace(base, run=replace(base.run, id=RUN), stages=stages, plan=replace(base.plan, key=key, mesh=mesh))
    store.put(f"{record.prefix}/record.json", record.to_json())


def test_files_are_for_so_many_servers_and_name_each_other(slurm, workspace):
    done = slurm("--nodes", "4", "--per-node", "2", "--", "torchrun", "train.py")
    assert done.exit_code == 0
    script, order, ranks = written(workspace)
    assert order == ["b1", "b2", "b3", "b4"]
    assert f"ranks={ranks}\n" in script
    assert ' launcher "$ranks" "$logs" torchrun train.py\n' in script
    assert "export WORLD_SIZE=8\n" in script
    assert "export NCCL_IB_QPS_PER_CONNECTION=${NCCL_IB_QPS_PER_CONNECTION:-4}\n" in script
    assert done.stdout.splitlines() == [str(ranks), str(workspace / "files" / "job.sbatch")]


def test_free_servers_are_those_that_are_named(slurm, workspace):
    assert slurm("--nodes", "3", "--tile", "1", "--among", "a[1-3],b1", "--", "run").exit_code == 0
    assert written(workspace)[1] == ["a1", "a2", "a3"]


def test_plan_of_a_run_says_nodes_ranks_and_tiles(slurm, workspace):
    planned_run(workspace, Mesh(dp_shard=3, tp=4), procs_per_node=2)
    assert slurm("--run", RUN, "--", "run").exit_code == 0
    script, order, _ = written(workspace)
    assert order == ["a1", "a2", "b1", "b2", "b3", "b4"]  # tiles of two servers, none of them in both groups
    assert "export WORLD_SIZE=12\n" in script
    assert f"#SBATCH --job-name={RUN}\n" in script


def test_stages_of_a_planned_pipeline_are_laid_out_by_what_they_send(slurm, workspace):
    traffic = {"stages": 2, "data_edge_bytes": 1.0, "stage_edge_bytes": 1e9}
    planned_run(workspace, Mesh(pp=2, dp_shard=2), procs_per_node=1, pipeline=traffic)
    assert slurm("--run", RUN, "--among", "a[1-2],b[1-2]", "--", "run").exit_code == 0
    assert [name[0] for name in written(workspace)[1]] == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--nodes", "9", "--", "run"), 20, "wanted 9 servers, found 7 among 7"),
        (("--nodes", "4", "--tile", "3", "--", "run"), 2, "--tile: wanted a number that divides 4 servers, found 3"),
        (("--nodes", "1", "--among", "a[", "--", "run"), 2, "--among: wanted server names"),
        (("--nodes", "1", "--among", "z1", "--", "run"), 2, "found z1 in none of them"),
        (("--run", RUN, "--", "run"), 2, "has no plan yet"),
    ],
)
def test_what_cannot_be_placed_is_refused_and_nothing_is_written(slurm, workspace, words, code, says):
    unplanned = replace(BASE, plan=None, run=replace(BASE.run, id=RUN))
    open_store(f"file:{workspace / '.gangline' / 'store'}").put(f"{unplanned.prefix}/record.json", unplanned.to_json())
    done = slurm(*words)
    assert (done.exit_code, says in str(done.exception)) == (code, True), str(done.exception)
    assert not (workspace / "files").exists()


def test_network_without_servers_is_refused(gangline, workspace, monkeypatch):
    monkeypatch.setenv("HOME", str(workspace))
    monkeypatch.delenv("GANGLINE_FABRIC", raising=False)
    done = gangline("fabric", "slurm", "--out", "files", "--nodes", "1", "--", "run")
    assert done.exit_code == 10
    assert "wanted a fabric.toml whose groups name the servers" in str(done.exception)


def test_plan_for_two_kinds_of_gpu_gets_no_files(slurm, workspace):
    kinds = [{"num_nodes": 1, "labels": {"gpu": each}} for each in ("a", "b")]
    planned_run(workspace, Mesh(dp_replicate=4), procs_per_node=2, kinds=kinds)
    done = slurm("--run", RUN, "--", "run")
    assert isinstance(done.exception, ConfigError)
    assert "wanted a plan for one kind of GPU, found one for two" in str(done.exception)
    assert not (workspace / "files").exists()

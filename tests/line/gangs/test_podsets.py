"""The gang of a plan, here and on a cluster."""

from dataclasses import replace

import pytest
from tests.line.records import record

from gangline.errors import ConfigError, TrainingError, UsageError
from gangline.line.gangs.podsets import (
    POD_COMMAND,
    commit_variables,
    gang_shape,
    make_podset,
    pod_store_url,
    server_labels,
)
from gangline.line.request.targets import parse_target, require_same_target, site_of, with_target
from gangline.spec.config.line import Line, PlanTable, ProjectTable, TrainTable
from gangline.spec.config.site import LaunchTable, LimitsTable, PodTable, Site, StoreTable
from gangline.spec.devices import Inventory
from gangline.spec.gang.podset import PipelineTraffic, Placement, PodSet, ServerKind
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Job, Plan, ProgramSpec, Recovery
from gangline.spec.record import PlanInfo, StageInfo
from gangline.storage.open import open_store

IMAGE = "registry.example/gangline/runtime@sha256:" + "a" * 64
S3 = "s3://bucket/p?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=here"


class FarStore:
    """A folder that says it is an S3 server: podsets ask a store for its URL, and to keep a blob."""

    def __init__(self, folder):
        self._inner = open_store(f"file:{folder}")
        self.url = S3

    def __getattr__(self, name):
        return getattr(self._inner, name)


def line_of(ranks):
    return Line(
        project=ProjectTable(name="cheap", command=("python", "x.py")),
        train=TrainTable(steps=4, global_batch=8, ranks=ranks, env={"A": "1"}),
    )


def plan_of(ranks, device="cpu"):
    return Plan(
        run="cheap-9f31c2a0-k7q2mx", project="cheap", name=f"ddp-{ranks}", run_prefix="runs/cheap/c/r",
        program=ProgramSpec(command=("python", "x.py")), strategy="ddp", mesh=Mesh(dp_replicate=ranks), steps=4,
        global_batch=8, micro_batch=1, checkpoint=CheckpointPolicy(every=2),
        recovery=Recovery(max_events=3), device=device,
    )  # fmt: skip


def record_plan():
    return PlanInfo(
        digest="d", key="k", name="pp-2", strategy="pp", mesh=Mesh(), world_size=4, steps=4, global_batch=8,
        micro_batch=1, precision="fp32", device="cpu", reason="",
    )  # fmt: skip


def planned(target="kubernetes", *, procs, image=IMAGE):
    base = record()
    stages = dict(base.stages)
    stages["build"] = StageInfo(state="done", outputs={"code": "blobs/sha256/" + "c" * 64})
    stages["plan"] = StageInfo(state="done", outputs={"procs_per_node": procs})
    return replace(base, run=replace(base.run, target=target), inputs=replace(base.inputs, image=image), stages=stages)


def podset(tmp_path, site, *, target="kubernetes", ranks=4, procs=2, device="cpu", image=IMAGE):
    return make_podset(
        plan_of(ranks, device), record=planned(target, procs=procs, image=image), line=line_of(ranks), site=site,
        store=FarStore(tmp_path / "store"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("bound", "jobs", "spent", "seconds", "key"),
    [
        (None, (), 99.0, 600.0, "limits.run_seconds of site.toml"),
        (60.0, (), 0.0, 60.0, "plan.deadline_seconds"),
        (60.0, (), 45.5, 14.5, "plan.deadline_seconds"),
        (60.0, (Job(seed=1, train=False), Job(seed=2), Job(seed=3)), 0.0, 120.0, "plan.deadline_seconds"),
        (60.0, (Job(seed=1, train=False),), 0.0, 60.0, "plan.deadline_seconds"),
        (60.0, tuple(Job(seed=seed) for seed in range(20)), 0.0, 600.0, "limits.run_seconds of site.toml"),
    ],
)
def test_gang_has_the_time_that_the_line_gives_a_training_less_that_of_earlier_gangs(
    tmp_path, bound, jobs, spent, seconds, key
):
    line = replace(line_of(4), plan=PlanTable(deadline_seconds=bound))
    found = make_podset(
        replace(plan_of(4), jobs=jobs), record=planned("local", procs=4), line=line,
        site=Site(limits=LimitsTable(run_seconds=600.0)), store=FarStore(tmp_path / "store"), spent_seconds=spent,
    )  # fmt: skip
    assert (found.deadline_seconds, found.deadline_key) == (seconds, key)


def test_gang_without_time_left_is_refused_by_the_key_that_took_it(tmp_path):
    line = replace(line_of(4), plan=PlanTable(deadline_seconds=60.0))
    with pytest.raises(TrainingError, match=r"plan\.deadline_seconds: wanted at most 60 s, earlier gangs took 61\.0 s"):
        make_podset(
            plan_of(4), record=planned("local", procs=4), line=line, site=Site(), store=FarStore(tmp_path / "store"),
            spent_seconds=61.0,
        )  # fmt: skip


def test_pods_get_sizes_image_and_the_store_as_they_reach_it(tmp_path):
    site = Site(
        store=StoreTable(
            url="s3://bucket/p", endpoint="http://127.0.0.1:9000", cluster_endpoint="http://minio.store:9000",
            credentials="secret:env:KEY",
        ),
        launch=LaunchTable(target="kubernetes", queue="shared"),
        pod=PodTable(cpus=2, memory_bytes=1e9, shm_bytes=5e8),
    )  # fmt: skip
    found = podset(tmp_path, site)
    assert (found.num_nodes, found.procs_per_node, found.command, found.image) == (2, 2, POD_COMMAND, IMAGE)
    assert found.store == "s3://bucket/p?endpoint=http%3A%2F%2Fminio.store%3A9000&region=here"
    resources = found.resources
    assert (resources.cpus, resources.memory_bytes, resources.shm_bytes) == (4, 2_000_000_000, 500_000_000)
    assert (resources.gpus, resources.rdma) == (0, 0)
    assert (found.queue, found.secrets) == ("shared", ("checkpoint-key", "store-credentials"))
    assert found.env == {"A": "1"} | commit_variables(planned(procs=2))


def test_gpu_pods_ask_for_a_gpu_a_rank_and_for_rdma_where_the_site_names_it(tmp_path):
    site = Site(launch=LaunchTable(target="kubernetes"), pod=PodTable(rdma="rdma/ib"))
    found = podset(tmp_path, site, ranks=16, procs=8, device="cuda")
    assert (found.resources.gpus, found.resources.rdma, found.num_nodes) == (8, 8, 2)


def test_the_same_run_gives_the_same_podset_to_every_driver(tmp_path):
    site = Site(launch=LaunchTable(target="kubernetes"))
    assert podset(tmp_path / "a", site).digest == podset(tmp_path / "b", site).digest


def test_on_this_machine_nothing_of_a_cluster_is_asked_for(tmp_path):
    found = podset(tmp_path, Site(), target="local", ranks=2, procs=2, image=None)
    assert (found.image, found.resources.cpus, found.store) == (None, None, S3)


def test_pods_without_an_image_are_refused_with_what_to_set(tmp_path):
    with pytest.raises(ConfigError, match=r"registry\.base"):
        podset(tmp_path, Site(launch=LaunchTable(target="kubernetes")), image=None)


def test_a_folder_is_not_a_store_for_pods():
    with pytest.raises(ConfigError, match="s3://bucket/prefix"):
        pod_store_url("file:/somewhere", Site())


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("local", ("local", "here")),
        ("kubernetes", ("kubernetes", "here")),
        ("kfp", ("kubernetes", "kfp")),
        ("kfp-local", ("local", "kfp-local")),
    ],
)
def test_a_target_says_where_ranks_run_and_who_drives(target, wanted):
    assert parse_target(target) == wanted


def test_unknown_targets_are_refused_with_those_there_are():
    with pytest.raises(ConfigError, match="kfp-local"):
        with_target(Site(), "moon")


def test_a_run_is_looked_for_where_it_was_born():
    site = Site(launch=LaunchTable(target="local"))
    assert site_of(planned(procs=1), site).launch.target == "kubernetes"


def test_an_open_run_is_not_taken_elsewhere():
    with pytest.raises(UsageError, match="runs its ranks at kubernetes"):
        require_same_target(planned(procs=1), "local")
    require_same_target(planned(procs=1), "kubernetes")
    ended = planned(procs=1)
    require_same_target(replace(ended, run=replace(ended.run, state="ended")), "local")


def test_pool_and_priority_of_the_site_reach_the_gang(tmp_path):
    site = Site(
        store=StoreTable(url="s3://bucket/p", endpoint="http://127.0.0.1:9000"),
        launch=LaunchTable(target="kubernetes", pool="h200", priority="low"),
    )  # fmt: skip
    found = podset(tmp_path, site)
    assert (found.pool, found.priority, found.tile) == ("h200", "low", 1)


@pytest.mark.parametrize(("mesh", "procs", "tile"), [
    (Mesh(dp_shard=16), 4, 1),
    (Mesh(dp_shard=2, tp=8), 4, 2),
    (Mesh(dp_shard=2, cp=2, tp=4), 4, 2),
    (Mesh(dp_shard=4, cp=2, tp=2), 4, 1),
    (Mesh(dp_shard=4, tp=6), 4, 3),
    (Mesh(pp=2, dp_shard=1, cp=4, tp=8), 8, 4),
])  # fmt: skip
def test_pods_whose_ranks_exchange_in_every_layer_are_a_tile(tmp_path, mesh, procs, tile):
    plan = replace(plan_of(2), mesh=mesh)
    site = Site(
        store=StoreTable(url="s3://bucket/p", endpoint="http://127.0.0.1:9000"), launch=LaunchTable(target="kubernetes")
    )  # fmt: skip
    found = make_podset(plan, record=planned(procs=procs), line=line_of(2), site=site, store=FarStore(tmp_path / "s"))
    assert found.tile == tile
    assert found.num_nodes % tile == 0
    peers = mesh.cp * mesh.tp
    for start in range(0, found.world_size, peers):  # every set of tp and cp peers lies on the servers of one tile
        servers = {rank // procs // tile for rank in range(start, start + peers)}
        assert len(servers) == 1


def test_pods_carry_the_traffic_of_the_plan_that_the_run_recorded_and_of_no_other(tmp_path):
    traffic = {"stages": 2, "data_edge_bytes": 2.0, "stage_edge_bytes": 1.0}
    base = planned(procs=2)
    plan = replace(plan_of(4), mesh=Mesh(pp=2, dp_replicate=2))
    stages = {**base.stages, "plan": StageInfo(state="done", outputs={"procs_per_node": 2, "pipeline": traffic})}
    run = replace(base, stages=stages, plan=replace(record_plan(), mesh=plan.mesh))
    site, store = Site(launch=LaunchTable(target="kubernetes")), FarStore(tmp_path / "store")
    found = make_podset(plan, record=run, line=line_of(4), site=site, store=store)
    assert found.placement == Placement(pipeline=PipelineTraffic(**traffic))
    assert PodSet.from_json(found.to_json()) == found
    other = make_podset(plan_of(4), record=run, line=line_of(4), site=site, store=store)
    assert other.placement is None


def test_variables_of_the_network_are_the_placements_and_those_of_the_line_win(tmp_path):
    base = planned(procs=2)
    outputs = {"procs_per_node": 2, "environment": {"NCCL_CROSS_NIC": "0", "A": "network"}}
    run = replace(base, stages={**base.stages, "plan": StageInfo(state="done", outputs=outputs)})
    site, store = Site(launch=LaunchTable(target="kubernetes")), FarStore(tmp_path / "store")
    found = make_podset(plan_of(4), record=run, line=line_of(4), site=site, store=store)
    assert found.placement == Placement(environment=outputs["environment"])
    assert found.env == {"A": "1"} | commit_variables(run)
    assert found.variables == {"NCCL_CROSS_NIC": "0"} | found.env


FAST, SLOW = (ServerKind(num_nodes=2, labels={"gpu": each}) for each in ("fast", "slow"))


@pytest.mark.parametrize(
    ("ranks", "placement"),
    [
        (8, Placement(kinds=(FAST, SLOW))),
        (6, Placement(kinds=(FAST, replace(SLOW, num_nodes=1)))),
        (4, Placement(labels={"gpu": "fast"})),
    ],
)
def test_gang_of_two_kinds_takes_servers_of_each_and_a_smaller_one_the_first(ranks, placement):
    first, second = (Inventory(num_nodes=each.num_nodes, labels=each.labels) for each in (FAST, SLOW))
    base = planned(procs=2)
    outputs = {"procs_per_node": 2, **server_labels(replace(first, others=(second,)))}
    stages = {**base.stages, "plan": replace(base.stages["plan"], outputs=outputs)}
    assert gang_shape(plan_of(ranks), replace(base, stages=stages)).placement == placement


def test_servers_of_the_one_kind_of_a_plan_are_selected_where_there_are_others():
    assert server_labels(Inventory(labels=FAST.labels)) == {"labels": FAST.labels}
    assert server_labels(Inventory()) == {}


@pytest.mark.parametrize("target", ["local", "kubernetes"])
@pytest.mark.parametrize("branch", ["main", "feature/ü#1-$(x)", None])
def test_ranks_learn_commit_branch_and_whether_the_tree_was_dirty(tmp_path, target, branch):
    made = planned(target, procs=2, image=IMAGE if target == "kubernetes" else None)
    site = Site(store=StoreTable(url="s3://bucket/p", endpoint="http://127.0.0.1:9000"))
    for patch in (None, "blobs/sha256/" + "p" * 64):
        of_commit = replace(made, commit=replace(made.commit, branch=branch, patch=patch))
        found = make_podset(
            plan_of(4), record=of_commit, line=line_of(4), site=site, store=FarStore(tmp_path / "store")
        ).variables
        wanted = {"GANGLINE_COMMIT": made.commit.sha, "GANGLINE_BRANCH": branch, "GANGLINE_DIRTY": patch and "1"}
        assert {name: found.get(name) for name in wanted} == wanted

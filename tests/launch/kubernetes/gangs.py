"""Gangs to be rendered, one a case, with all that they depend on."""

from dataclasses import replace
from datetime import UTC, datetime

from gangline.launch.kubernetes.cluster.facts import ClusterFacts, KaiFacts, VolcanoFacts
from gangline.launch.kubernetes.objects.render_context import RenderContext
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.spec.gang.driver_orders import COORDINATOR_KEY, CoordinatorPod
from gangline.spec.gang.podset import Placement, PodSet, Resources

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
IMAGE = "registry.example/gangline/bytegpt@sha256:" + "5e" * 32
STORE = "s3://models/gangline?endpoint=http://minio.store.svc:9000&region=eu-1"

CPU = PodSet(
    name="bytegpt-9f31c2a0-k7q2mx",
    run="bytegpt-9f31c2a0-k7q2mx",
    project="bytegpt",
    commit="9f31c2a0" * 5,
    procs_per_node=2,
    image=IMAGE,
    code="blobs/sha256/" + "c0" * 32,
    plan="blobs/sha256/" + "a1" * 32,
    store=STORE,
    command=("python", "-m", "gangline.keeper.pod"),
    env={"TOKENIZERS_PARALLELISM": "false"},
    deadline_seconds=3600.0,
    metrics_port_base=9400,
    secrets=("checkpoint-key", "store-credentials"),
)
GPU = replace(
    CPU,
    num_nodes=4,
    procs_per_node=8,
    resources=Resources(cpus=64, memory_bytes=512 * 1024**3, gpus=8, rdma=8, shm_bytes=64 * 1024**3),
    priority="high",
    pool="h200",
    grace_seconds=120.0,
)
PATHS = Placement(
    environment={"NCCL_CROSS_NIC": "0", "NCCL_IB_QPS_PER_CONNECTION": "4", "TOKENIZERS_PARALLELISM": "true"}
)
"""The last one is set by the gang itself, too, which wins."""
PAIR = replace(CPU, num_nodes=2)
SITE = PodTable()
GPU_SITE = PodTable(rdma="rdma/hca", interface="bond0", selector={"gpu": "h200"}, tolerate=("nvidia.com/gpu",))
CLASSES = ClusterFacts(priority_classes=("gangline-low", "gangline-normal", "gangline-high"))


COORDINATOR = CoordinatorPod(
    image="registry.example/gangline/federation@sha256:" + "fe" * 32, kit="gangline-kit/server.tar",
    admin="gangline-kit-admin/lead.tar", service="federation", port=8002,
    orders="runs/bytegpt/9f31c2a0/k7q2mx/coordinator.json",
)  # fmt: skip
FEDERATED = replace(
    CPU, procs_per_node=1, env={COORDINATOR_KEY: COORDINATOR.to_json().decode()}, metrics_port_base=None
)


def setting(podset=CPU, *, namespace="gangs", pod=SITE, facts=CLASSES, route="none", **more):
    launch = more.pop("launch", LaunchTable())
    return RenderContext(
        podset=podset, namespace=namespace, pod=pod, launch=launch, facts=facts, route=route, now=NOW, **more
    )


def kueue_setting():
    levels = ("gangline/fabric-block", "gangline/fabric-group", "kubernetes.io/hostname")
    facts = replace(CLASSES, queues={"shared": "gpus"}, topologies=("racks",), levels={"shared": levels})
    return setting(replace(GPU, placement=Placement(tile=2)), pod=GPU_SITE, route="kueue", facts=facts)


VOLCANO = VolcanoFacts(
    queues=("default", "gpus"), tiers=(1, 2), fields=("minMember", "networkTopology", "queue", "subGroupPolicy")
)
KAI = KaiFacts(
    queues=("gpus",), topologies={"racks": ("gangline/fabric-block", "gangline/fabric-group", "kubernetes.io/hostname")}
)


def volcano_setting(*, tile):
    facts, launch = replace(CLASSES, volcano=VOLCANO), LaunchTable(queue="gpus")
    return setting(
        replace(GPU, placement=Placement(tile=tile)), pod=GPU_SITE, route="volcano", facts=facts, launch=launch
    )


def kai_setting(*, tile):
    facts = replace(CLASSES, kai=KAI)
    return setting(replace(GPU, placement=Placement(tile=tile)), pod=GPU_SITE, route="kai", facts=facts)


def shared_setting(spelling):
    """Under a runtime that an administrator keeps."""
    return setting(
        replace(GPU, priority="normal"),
        pod=GPU_SITE,
        facts=ClusterFacts(trainer=spelling),
        route="gates",
        launch=LaunchTable(runtime="gangline"),
    )


def cases():
    """Name to kind of root and setting, of gangs that bring their template."""
    return {
        "job-1-cpu": ("job", setting()),
        "job-2-cpu": ("job", setting(PAIR)),
        "job-1-coordinator": ("job", setting(FEDERATED)),
        "job-4-gpu-gates": ("job", setting(GPU, pod=GPU_SITE, route="gates")),
        "job-4-gpu-kueue": ("job", kueue_setting()),
        "jobset-4-gpu-gates": ("jobset", setting(GPU, pod=GPU_SITE, route="gates")),
        "jobset-4-gpu-one-group": ("jobset", setting(GPU, pod=GPU_SITE, route="jobset")),
        "jobset-4-gpu-kai": ("jobset", kai_setting(tile=4)),
        "jobset-4-gpu-volcano": ("jobset", volcano_setting(tile=4)),
        "job-4-gpu-volcano-tiles": ("job", volcano_setting(tile=2)),
        "trainjob-1-cpu": ("trainjob", setting()),
        "trainjob-4-gpu-gates": ("trainjob", setting(replace(GPU, placement=PATHS), pod=GPU_SITE, route="gates")),
        "trainjob-4-gpu-kai": ("trainjob", kai_setting(tile=1)),
        "trainjob-4-gpu-kueue": ("trainjob", kueue_setting()),
    }


def shared_cases():
    """Likewise, of gangs under a runtime that others share; named after the first Trainer of that spelling."""
    return {
        "trainjob-2.1-shared-runtime": ("trainjob", shared_setting("podTemplateOverrides")),
        "trainjob-2.2-shared-runtime": ("trainjob", shared_setting("runtimePatches")),
    }

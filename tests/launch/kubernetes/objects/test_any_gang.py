"""Whatever a line and a site ask for within their rules, its objects are valid, allowed and always the same."""

import copy

import kubernetes_validate
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from tests.launch.kubernetes.gangs import CPU, IMAGE, NOW
from tests.launch.kubernetes.templates import pod_of, template_of
from tests.oracles.restricted_pods import violations

from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.manifest import in_order, render_yaml
from gangline.launch.kubernetes.objects.pod import resources
from gangline.launch.kubernetes.objects.render import render_as
from gangline.launch.kubernetes.objects.render_context import RenderContext
from gangline.spec.config.site import LaunchTable, PodTable
from gangline.spec.gang.podset import PodSet, Resources

KINDS = ("job", "jobset", "trainjob")
names = st.from_regex(r"\A[a-z][a-z0-9-]{0,14}[a-z0-9]\Z")
variables = st.dictionaries(st.from_regex(r"\A[A-Z_][A-Z0-9_]{0,9}\Z"), st.text("aZ$(){}=\n ", max_size=12), max_size=3)
seconds = st.floats(min_value=0, max_value=1e6)


@st.composite
def podsets(draw):
    name = draw(names)
    return PodSet(
        name=name,
        run=name,
        project=draw(names),
        commit="0123456789abcdef" * 2,
        role=draw(st.sampled_from(["train", "evaluate", "prove"])),
        num_nodes=draw(st.integers(1, 2048)),
        procs_per_node=draw(st.integers(1, 16)),
        image=IMAGE,
        code=CPU.code,
        plan=CPU.plan,
        store=CPU.store,
        command=("python", "-m", "gangline.keeper.pod"),
        env=draw(variables),
        resources=Resources(
            cpus=draw(st.none() | st.floats(0.01, 256)),
            memory_bytes=draw(st.none() | st.integers(1, 2**42)),
            gpus=draw(st.integers(0, 16)),
            shm_bytes=draw(st.none() | st.integers(0, 2**40)),
        ),
        priority=draw(st.sampled_from(["low", "normal", "high"])),
        pool=draw(st.none() | names),
        deadline_seconds=draw(st.none() | seconds.filter(bool)),
        grace_seconds=draw(seconds),
        metrics_port_base=draw(st.none() | st.integers(1024, 20_000)),
        secrets=draw(st.sampled_from([(), ("checkpoint-key",), ("checkpoint-key", "store-credentials")])),
    )


sites = st.builds(
    PodTable,
    cpus=st.floats(0.1, 64),
    memory_bytes=st.floats(1e6, 1e12),
    shm_bytes=st.floats(0, 1e11),
    rdma=st.none() | st.just("rdma/hca"),
    user=st.integers(1, 2**31 - 1),
    pull=st.sampled_from(["IfNotPresent", "Never", "Always"]),
    pull_secrets=st.sampled_from([(), ("gangline-pull",)]),
    selector=st.dictionaries(names, names, max_size=2),
    tolerate=st.sampled_from([(), ("nvidia.com/gpu",)]),
)
settings = st.builds(
    RenderContext,
    podset=podsets(),
    namespace=names,
    pod=sites,
    launch=st.just(LaunchTable()),
    facts=st.sampled_from(
        [ClusterFacts(), ClusterFacts(priority_classes=("gangline-high",), api_addresses=("10.0.0.1",))]
    ),
    route=st.sampled_from(["gates", "none"]),
    now=st.just(NOW),
)


@given(setting=settings, kind=st.sampled_from(KINDS))
def test_pod_of_any_gang_is_allowed(setting, kind):
    assert violations(pod_of(render_as(kind, setting))) == ()


@budget(max_examples=8)
@given(setting=settings)
def test_objects_of_any_gang_are_known_to_kubernetes(setting):
    for thing in in_order(render_as("job", setting)):
        assert kubernetes_validate.validate(thing, "1.31", strict=True) == "1.31"


@budget(max_examples=10)
@given(setting=settings, kind=st.sampled_from(KINDS))
def test_same_question_gives_the_same_bytes(setting, kind):
    again = copy.deepcopy(setting)
    assert render_yaml(kind, setting) == render_yaml(kind, again)


@given(setting=settings)
def test_memory_of_any_pod_holds_its_shared_memory(setting):
    limits = resources(setting)["limits"]
    (shm,) = [each for each in template_of(render_as("job", setting))["spec"]["volumes"] if each["name"] == "shm"]
    assert int(limits["memory"]) >= int(shm["emptyDir"]["sizeLimit"])
    assert resources(setting)["requests"] == limits

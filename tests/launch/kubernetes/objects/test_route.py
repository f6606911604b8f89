"""Who starts a gang whole: several pods are never left to the plain scheduler."""

from dataclasses import replace

import pytest
from tests.launch.kubernetes.gangs import setting

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts, KaiFacts, VolcanoFacts
from gangline.launch.kubernetes.objects.render_context import choose_route, why_one_kind
from gangline.spec.config.site import LaunchTable
from gangline.spec.gang.podset import Placement, PodSet, ServerKind

PLAIN = ClusterFacts(version="1.34", served=("batch/v1/jobs",))
KUEUE = ClusterFacts(
    version="1.34", served=("kueue.x-k8s.io/v1beta2/workloads",), topologies=("default",), queues={"shared": "team"}
)


def gang(num_nodes: int, *, queue: str | None = None) -> PodSet:
    return PodSet(
        name="run-1", run="run-1", project="p", commit="c", num_nodes=num_nodes, procs_per_node=2,
        code="blobs/sha256/a", plan="blobs/sha256/b", store="s3://b/p", queue=queue,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("num_nodes", "wanted", "facts", "route"),
    [
        (1, "auto", PLAIN, "none"),
        (2, "auto", PLAIN, "gates"),
        (1, "auto", KUEUE, "kueue"),
        (2, "auto", KUEUE, "kueue"),
        (2, "none", PLAIN, "none"),
        (1, "gates", KUEUE, "gates"),
        (2, "kueue", KUEUE, "kueue"),
    ],
)
def test_route_is_the_sites_or_what_the_cluster_can_do(num_nodes, wanted, facts, route):
    assert choose_route(gang(num_nodes), LaunchTable(route=wanted), facts) == route


def test_jobset_places_the_gangs_that_it_makes():
    assert choose_route(gang(2), LaunchTable(route="jobset", launcher="jobset"), PLAIN) == "jobset"
    assert choose_route(gang(1), LaunchTable(route="jobset", launcher="jobset"), PLAIN) == "none", (
        "no group for one pod"
    )
    with pytest.raises(ConfigError, match=r'wanted launch\.launcher = "jobset" with "jobset", found "trainjob"'):
        choose_route(gang(2), LaunchTable(route="jobset"), PLAIN)


@pytest.mark.parametrize(("route", "component"), [("kueue", "Kueue"), ("volcano", "Volcano"), ("kai", "KAI")])
def test_component_that_is_not_there_is_reported(route, component):
    with pytest.raises(ConfigError, match=f'wanted "{route}", found no {component} on this cluster; use "gates" or'):
        choose_route(gang(2), LaunchTable(route=route), PLAIN)


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_scheduler_of_the_site_gets_every_gang_and_is_never_chosen_unasked(num_nodes):
    both = ClusterFacts(volcano=VolcanoFacts(), kai=KaiFacts())
    assert choose_route(gang(num_nodes), LaunchTable(route="volcano"), both) == "volcano"
    assert choose_route(gang(num_nodes), LaunchTable(route="kai"), both) == "kai"
    assert choose_route(gang(num_nodes), LaunchTable(), both) in ("none", "gates")


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_queue_that_no_one_serves_is_reported_and_not_forgotten(num_nodes):
    with pytest.raises(ConfigError, match="wanted queue shared, found no Kueue on this cluster"):
        choose_route(gang(num_nodes, queue="shared"), LaunchTable(), PLAIN)


def test_gang_with_a_queue_waits_in_it_even_where_kueue_knows_no_topology():
    facts = ClusterFacts(version="1.34", served=KUEUE.served, queues={"shared": "team"})
    assert choose_route(gang(2, queue="shared"), LaunchTable(), facts) == "kueue"
    assert choose_route(gang(2), LaunchTable(), facts) == "gates"


def test_gang_of_two_kinds_of_gpu_is_for_the_placer_that_gives_each_pod_its_server():
    kinds = tuple(ServerKind(num_nodes=1, labels={"gpu": each}) for each in ("a", "b"))
    unlike = replace(gang(2), placement=Placement(kinds=kinds), image="r/i@sha256:" + "a" * 64)
    assert setting(unlike, route="gates").route == "gates"
    with pytest.raises(ConfigError, match=r'two kinds of GPU; launch.route "kueue" starts equal pods'):
        setting(unlike, route="kueue")


@pytest.mark.parametrize(("facts", "launch"), [(KUEUE, LaunchTable()), (PLAIN, LaunchTable(route="none"))])
def test_planner_is_reported_before_where_no_gang_of_two_kinds_starts(facts, launch):
    assert "starts equal pods" in why_one_kind(launch, facts)
    assert why_one_kind(LaunchTable(), PLAIN) == ""

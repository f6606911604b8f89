"""What Volcano and KAI have, read through a fake API server."""

from datetime import UTC, datetime

import pytest
from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.garbage import collect_garbage
from tests.launch.kubernetes.cluster.test_rights import launcher, podset

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts, KaiFacts, missing_rights, read_facts
from gangline.launch.kubernetes.cluster.rights import DRIVER, READER, SWEEPER

VOLCANO, KAI = "/apis/scheduling.volcano.sh/v1beta1", "/apis/scheduling.run.ai/v2"
HYPERNODES, TOPOLOGIES = "/apis/topology.volcano.sh/v1alpha1/hypernodes", "/apis/kai.scheduler/v1alpha1/topologies"


def make(api, path, kind, name, **more):
    version = "/".join(path.split("/")[2:4])
    api.create(path, {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more})


def with_volcano(**how):
    api = FakeApi(serve=("volcano",), **how)
    full = FakeApi(server=api.server)
    for name, state in {"root": "Open", "default": "Open", "gpus": "Open", "new": "", "old": "Closed"}.items():
        make(full, f"{VOLCANO}/queues", "Queue", name)
        full.patch(f"{VOLCANO}/queues/{name}/status", {"status": {"state": state}})
    for name, tier in {"rack-1": 1, "rack-2": 1, "row": 2}.items():
        make(full, HYPERNODES, "HyperNode", name, spec={"tier": tier})
    return api


def with_kai():
    api = FakeApi(serve=("kai",))
    for name, parent in {"all": None, "gpus": "all", "nlp": "all"}.items():
        make(api, f"{KAI}/queues", "Queue", name, spec={"parentQueue": parent} if parent else {})
    make(api, TOPOLOGIES, "Topology", "racks", spec={"levels": [{"nodeLabel": "row"}, {"nodeLabel": "rack"}]})
    return api


def test_cluster_without_them_has_neither():
    facts = read_facts(FakeApi())
    assert (facts.volcano, facts.kai) == (None, None)


def test_volcano_has_open_queues_tiers_and_fields():
    facts = read_facts(with_volcano())
    assert facts.volcano.queues == ("default", "gpus")
    assert facts.volcano.tiers == (1, 2)
    assert {"minMember", "networkTopology", "subGroupPolicy"} <= set(facts.volcano.fields)
    assert facts.kai is None
    assert ClusterFacts.from_json(facts.to_json()) == facts


def test_kai_has_queues_without_others_below_and_topologies():
    facts = read_facts(with_kai())
    assert facts.kai == KaiFacts(queues=("gpus", "nlp"), topologies={"racks": ("row", "rack")})
    assert facts.volcano is None
    assert ClusterFacts.from_json(facts.to_json()) == facts


def test_queue_of_kai_below_one_that_is_missing_takes_no_gang():
    api = with_kai()
    for name, parent in {"lost": "gone", "below": "lost", "alone": None}.items():
        make(api, f"{KAI}/queues", "Queue", name, spec={"parentQueue": parent} if parent else {})
    assert read_facts(api).kai.queues == ("alone", "gpus", "nlp")


def test_what_this_account_may_not_list_is_not_known():
    api, other = with_volcano(), with_kai()
    api.server.denied |= {("list", "queues.scheduling.volcano.sh"), ("list", "hypernodes.topology.volcano.sh")}
    other.server.denied |= {("list", "queues.scheduling.run.ai"), ("list", "topologies.kai.scheduler")}
    assert (read_facts(api).volcano.queues, read_facts(api).volcano.tiers) == (None, None)
    assert read_facts(api).volcano.fields
    assert read_facts(other).kai == KaiFacts(queues=None, topologies=None)


def test_reader_may_list_them():
    api = with_volcano(rights=(*DRIVER, *READER))
    assert read_facts(api).volcano.queues == ("default", "gpus")
    assert not api.refused


@pytest.mark.parametrize("right", ["create", "patch"])
def test_right_to_make_groups_is_missed_where_volcano_is(right):
    api = with_volcano()
    assert missing_rights(api) == []
    api.server.denied.add((right, "podgroups.scheduling.volcano.sh"))
    assert missing_rights(api) == [f"{right} podgroups.scheduling.volcano.sh"]


def test_driver_hands_a_gang_to_volcano_with_its_rights_alone():
    api = with_volcano(rights=(*DRIVER, *READER))
    driver = launcher(api, of=read_facts(api), route="volcano")
    driver.submit(podset("g"))
    full = FakeApi(server=api.server)
    (group,) = full.items(f"{VOLCANO}/namespaces/gangs/podgroups")[0]
    job = full.get("/apis/batch/v1/namespaces/gangs/jobs/g")
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (2, "default")
    assert [owner["uid"] for owner in group["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
    assert job["spec"]["suspend"] is False
    assert not api.refused


def test_gang_that_was_released_is_adopted_whatever_its_queue_has_become():
    api = with_volcano()
    launcher(api, of=read_facts(api), route="volcano").submit(podset("g"))
    api.patch(f"{VOLCANO}/queues/default/status", {"status": {"state": "Closing"}})
    later = launcher(api, of=read_facts(api), route="volcano")
    assert later.submit(podset("g")).adopted
    with pytest.raises(ConfigError, match="wanted an open queue default"):
        later.submit(podset("another"))


def test_sweep_deletes_a_group_whose_root_is_gone():
    api = with_volcano(rights=SWEEPER)
    full = FakeApi(server=api.server)
    labels = {"gangline/gang": "lost", "gangline/run": "lost"}
    make(full, f"{VOLCANO}/namespaces/gangs/podgroups", "PodGroup", "lost", spec={"minMember": 2})
    full.patch(f"{VOLCANO}/namespaces/gangs/podgroups/lost", {"metadata": {"labels": labels}})
    sweeper = launcher(api, of=read_facts(full), route="volcano")
    swept = sweeper.sweep(now=datetime.now(UTC), life=lambda run: "ended")
    assert [each.name for each in swept if each.deleted] == ["lost"]
    collect_garbage(api.server)
    assert full.items(f"{VOLCANO}/namespaces/gangs/podgroups")[0] == []

"""Who reaches whom, over all pairs of two gangs and their neighbourhood; and what a store's address becomes."""

from dataclasses import replace
from itertools import permutations

import pytest
from tests.launch.kubernetes.gangs import CPU, setting
from tests.oracles.network_policies import Endpoint, allowed

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.network_policy import network_policy, store_address
from gangline.launch.kubernetes.objects.render_context import labels
from gangline.spec.config.site_tables import SourceTable
from gangline.spec.gang.driver_orders import ShardAccess

NEIGHBOUR = replace(CPU, name="vision-77aa01be-p3m9dc", run="vision-77aa01be-p3m9dc", project="vision")
DENY = {"metadata": {"namespace": "gangs"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}
POLICIES = (DENY, network_policy(setting()), network_policy(setting(NEIGHBOUR)))
PORTS = (22, 53, 80, 443, 5353, 6443, 8888, 9000, 9001, 9400, 9401, 9402, 10250, 29500, 29501, 29502, 41234)


def gang_pod(podset, ip):
    return Endpoint(ip=ip, namespace="gangs", labels=labels(podset))


PLACES = {
    "a0": gang_pod(CPU, "10.1.0.10"),
    "a1": gang_pod(CPU, "10.1.0.11"),
    "b0": gang_pod(NEIGHBOUR, "10.1.0.20"),
    "b1": gang_pod(NEIGHBOUR, "10.1.0.21"),
    "stranger": Endpoint(ip="10.1.0.30", namespace="gangs", labels={"app": "notebook"}),
    "dns": Endpoint(ip="10.1.0.2", namespace="kube-system", labels={"k8s-app": "kube-dns"}),
    "store": Endpoint(ip="10.1.0.40", namespace="store", labels={"app": "minio"}),
    "prometheus": Endpoint(ip="10.1.0.50", namespace="monitoring"),
    "pipelines": Endpoint(ip="10.1.0.60", namespace="kubeflow", labels={"app": "ml-pipeline"}),
    "api server": Endpoint(ip="10.200.0.1"),
    "metadata": Endpoint(ip="169.254.169.254"),
    "outside": Endpoint(ip="93.184.216.34"),
}
GANGS = ("a0", "a1", "b0", "b1")


def is_meant(source, target, port, protocol):
    """The allow list, said once more, by hand."""
    if source in GANGS and target in GANGS:
        return source[0] == target[0]
    if source in GANGS:
        return (target == "dns" and port in (53, 5353)) or (target == "store" and (port, protocol) == (9000, "TCP"))
    return source == "prometheus" and port in (9400, 9401) and protocol == "TCP"


@pytest.mark.row("A4")
def test_gang_reaches_itself_name_servers_and_store_and_no_one_else():
    asked = [
        (source, target, port, protocol)
        for source, target in permutations(PLACES, 2)
        if source in GANGS or target in GANGS
        for port in PORTS
        for protocol in ("TCP", "UDP")
    ]
    opened = {
        question
        for question in asked
        if allowed(PLACES[question[0]], PLACES[question[1]], question[2], POLICIES, protocol=question[3])
    }
    assert opened == {question for question in asked if is_meant(*question)}
    assert len(opened) > 100


EXTERNAL = replace(CPU, store="s3://models/p?endpoint=https://s3.example.com")


@pytest.mark.row("A4")
@pytest.mark.parametrize(
    ("target", "port", "wanted"),
    [
        ("outside", 443, True),
        ("outside", 80, False),
        ("metadata", 443, False),
        ("metadata", 80, False),
        ("api server", 443, False),
        ("pipelines", 8888, False),
        ("b0", 443, False),
    ],
)
def test_store_outside_the_cluster_opens_its_port_but_not_to_api_server_or_metadata(target, port, wanted):
    facts = ClusterFacts(api_addresses=("10.200.0.1",))
    policies = (DENY, network_policy(setting(EXTERNAL, facts=facts)), network_policy(setting(NEIGHBOUR)))
    assert allowed(PLACES["a0"], PLACES[target], port, policies) is wanted


@pytest.mark.row("A4")
@pytest.mark.parametrize("metadata", ["fd00:ec2::254", "fe80::1"])
def test_store_outside_the_cluster_opens_no_link_local_service_of_ipv6(metadata):
    policies = (DENY, network_policy(setting(EXTERNAL)))
    assert not allowed(PLACES["a0"], Endpoint(ip=metadata), 443, policies)
    assert allowed(PLACES["a0"], Endpoint(ip="2001:db8::1"), 443, policies)


@pytest.mark.parametrize(
    ("endpoint", "inside", "outside"),
    [
        ("http://10.9.0.1:9000", Endpoint(ip="10.9.0.1"), Endpoint(ip="10.9.0.2")),
        ("http://[2001:db8::9]:9000", Endpoint(ip="2001:db8::9"), Endpoint(ip="2001:db8::8")),
        ("http://minio.store:9000", PLACES["store"], PLACES["pipelines"]),
        ("http://minio.store.svc.cluster.local:9000", PLACES["store"], PLACES["pipelines"]),
        ("http://minio.store.svc.cluster.local.:9000", PLACES["store"], PLACES["pipelines"]),
        ("http://minio:9000", PLACES["stranger"], PLACES["store"]),
        ("http://nas.lan.:9000", PLACES["outside"], PLACES["metadata"]),
    ],
)
def test_store_is_found_by_address_service_or_namespace(endpoint, inside, outside):
    policies = (DENY, network_policy(setting(replace(CPU, store=f"s3://models?endpoint={endpoint}"))))
    own = (policies[1],)
    assert allowed(PLACES["a0"], inside, 9000, own)
    assert not allowed(PLACES["a0"], outside, 9000, policies)


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("s3://b/p?endpoint=https://s3.example.com", ("s3.example.com", 443)),
        ("s3://b/p?endpoint=http://minio.store.svc", ("minio.store.svc", 80)),
        ("s3://b/p?endpoint=http://10.0.0.1:9000&region=x", ("10.0.0.1", 9000)),
    ],
)
def test_store_listens_at_its_own_port_or_that_of_its_scheme(url, wanted):
    assert store_address(url) == wanted


@pytest.mark.parametrize("url", ["file:/data/store", "s3://bucket/prefix", "s3://b?endpoint=minio:9000"])
def test_store_that_no_pod_can_reach_is_refused(url):
    with pytest.raises(ConfigError, match="wanted s3://bucket/prefix"):
        store_address(url)


def test_gang_without_metrics_opens_no_port_to_monitoring():
    quiet = network_policy(setting(replace(CPU, metrics_port_base=None)))
    assert not any(allowed(PLACES["prometheus"], PLACES["a0"], port, (quiet,)) for port in PORTS)


@pytest.mark.parametrize(
    ("trackers", "peer", "port"),
    [
        ("mlflow=http://10.3.0.7:5000", {"ipBlock": {"cidr": "10.3.0.7/32"}}, 5000),
        ("wandb=https://api.wandb.ai", "any address but those of the API server and of link-local services", 443),
        ("mlflow= wandb=", None, None),
        ("", None, None),
    ],
)
def test_a_gang_reaches_the_trackers_that_its_program_joins_and_those_alone(trackers, peer, port):
    podset = replace(CPU, env=CPU.env | {"GANGLINE_TRACKERS": trackers, "MLFLOW_TRACKING_URI": "http://6.6.6.6:1"})
    more = network_policy(setting(podset))["spec"]["egress"][3:]
    if peer is None:
        assert more == []
        return
    (rule,) = more
    assert rule["ports"] == [{"port": port, "protocol": "TCP"}]
    if isinstance(peer, dict):
        assert rule["to"] == [peer]
    else:
        assert {each["ipBlock"]["cidr"] for each in rule["to"]} == {"0.0.0.0/0", "::/0"}
        assert "169.254.0.0/16" in rule["to"][0]["ipBlock"]["except"]


def test_a_gang_reaches_the_sources_that_it_reads_in_place_and_their_hosts():
    sources = {
        "hdfs": SourceTable(
            url="webhdfs://10.3.0.7:9870/c", hosts=("10.3.0.8:9864", "datanode-*.hdfs.example.com:9864")
        ),
        "bucket": SourceTable(url="s3://b/p?endpoint=https://minio.store:9000"),
        "disk": SourceTable(url="file:///data"),
    }
    podset = replace(CPU, env=CPU.env | {"GANGLINE_SHARDS": ShardAccess(sources=sources).to_json().decode()})
    rules = network_policy(setting(podset))["spec"]["egress"][3:]
    assert sorted(rule["ports"][0]["port"] for rule in rules) == [9000, 9864, 9864, 9870]
    assert [rule["to"] for rule in rules if rule["ports"][0]["port"] == 9870] == [
        [{"ipBlock": {"cidr": "10.3.0.7/32"}}]
    ]
    (wild,) = [rule["to"] for rule in rules if len(rule["to"]) == 2]
    assert "169.254.0.0/16" in wild[0]["ipBlock"]["except"]

"""The evaluator of NetworkPolicies, rule by rule as Kubernetes documents them."""

import pytest
from tests.oracles.network_policies import Endpoint, allowed

from gangline.errors import ConfigError

WEB = Endpoint(
    ip="10.0.0.1", namespace="shop", labels={"app": "web"}, namespace_labels={"team": "a"}, ports={"http": 8080}
)
DB = Endpoint(ip="10.0.0.2", namespace="shop", labels={"app": "db"}, namespace_labels={"team": "a"})
SPY = Endpoint(ip="10.0.0.3", namespace="other", labels={"app": "web"}, namespace_labels={"team": "b"})
WORLD = Endpoint(ip="203.0.113.7")


def policy(*, namespace="shop", pods=None, **spec):
    return {"metadata": {"namespace": namespace}, "spec": {"podSelector": pods or {}, **spec}}


def ingress(*peers, ports=(), **more):
    rule = ({"from": list(peers)} if peers else {}) | ({"ports": list(ports)} if ports else {})
    return policy(ingress=[rule], **more)


def test_pod_that_no_policy_selects_is_open():
    assert allowed(WORLD, WEB, 80, [policy(pods={"matchLabels": {"app": "db"}})])
    assert allowed(SPY, WEB, 80, [policy(namespace="other", policyTypes=["Ingress"])])


def test_policy_without_rules_closes_ingress_and_leaves_egress():
    assert not allowed(SPY, WEB, 80, [policy()])
    assert allowed(WEB, SPY, 80, [policy()])


def test_policy_with_egress_rules_binds_egress_even_where_its_types_are_not_said():
    assert not allowed(WEB, SPY, 80, [policy(egress=[])])


def test_policies_add_up():
    closed, opened = policy(), ingress({"podSelector": {"matchLabels": {"app": "db"}}})
    assert allowed(DB, WEB, 80, [closed, opened])


def test_both_ends_must_agree():
    out = policy(policyTypes=["Egress"], egress=[{}])
    assert allowed(WEB, DB, 80, [out])
    assert not allowed(WEB, DB, 80, [out, policy(pods={"matchLabels": {"app": "db"}})])


def test_rule_without_peers_lets_everybody_in():
    assert allowed(WORLD, WEB, 80, [ingress()])


@pytest.mark.parametrize(
    ("peer", "who"),
    [
        ({"podSelector": {}}, {"db"}),
        ({"podSelector": {"matchLabels": {"app": "web"}}}, set()),
        ({"namespaceSelector": {}}, {"db", "spy"}),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, {"spy"}),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}, "podSelector": {"matchLabels": {"app": "db"}}}, set()),
        (
            {"namespaceSelector": {"matchLabels": {"team": "b"}}, "podSelector": {"matchLabels": {"app": "web"}}},
            {"spy"},
        ),
        ({"ipBlock": {"cidr": "203.0.113.0/24"}}, {"world"}),
        ({"ipBlock": {"cidr": "203.0.113.0/24", "except": ["203.0.113.7/32"]}}, set()),
        ({"ipBlock": {"cidr": "10.0.0.0/31"}}, set()),
        ({"ipBlock": {"cidr": "10.0.0.2/31"}}, {"db", "spy"}),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}}, {"db"}),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}}, set()),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, {"db"}),
        ({"podSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}, {"db"}),
    ],
)
def test_peer_lets_in_whom_it_describes(peer, who):
    places = {"db": DB, "spy": SPY, "world": WORLD}
    assert {name for name, place in places.items() if allowed(place, WEB, 80, [ingress(peer)])} == who


@pytest.mark.parametrize(
    ("port", "opened"),
    [
        ({"port": 8080}, {(8080, "TCP")}),
        ({"port": 8080, "protocol": "UDP"}, {(8080, "UDP")}),
        ({"port": 8079, "endPort": 8080}, {(8079, "TCP"), (8080, "TCP")}),
        ({"port": "http"}, {(8080, "TCP")}),
        ({"port": "grpc"}, set()),
        ({"protocol": "UDP"}, {(8079, "UDP"), (8080, "UDP")}),
    ],
)
def test_port_opens_what_it_says(port, opened):
    asked = [(number, protocol) for number in (8079, 8080) for protocol in ("TCP", "UDP")]
    rules = [ingress(ports=[port])]
    assert {each for each in asked if allowed(DB, WEB, each[0], rules, protocol=each[1])} == opened


def test_operator_that_kubernetes_does_not_know_is_refused():
    strange = {"podSelector": {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w*"]}]}}
    with pytest.raises(ConfigError, match="found operator 'Like'"):
        allowed(DB, WEB, 80, [ingress(strange)])

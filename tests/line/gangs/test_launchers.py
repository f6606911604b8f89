"""Devices of a site's target as the planner gets them."""

import pytest
from tests.cluster.fake.api import FakeApi
from tests.launch.kubernetes.placement.test_inventory import A100, H100, SMALL, gpu_node

from gangline.line.gangs import launchers
from gangline.spec.config.site import LaunchTable, Site


@pytest.fixture
def cluster(monkeypatch):
    """Two servers of one kind of GPU, and one of another."""
    api = FakeApi("gangs")
    for name, labels in (("a", H100), ("b", H100), ("c", A100)):
        body = gpu_node(name, labels=labels)
        api.server.write(("nodes", "", name), {**body, "metadata": {**body["metadata"], "uid": name}})
    monkeypatch.setattr(launchers, "open_cluster", lambda *_: api)


@pytest.mark.parametrize(("route", "reason"), [("auto", ""), ("none", 'launch.route "none" starts equal pods')])
@pytest.mark.usefixtures("cluster")
def test_two_kinds_of_a_cluster_are_for_one_gang_where_its_route_gives_each_pod_its_kind(route, reason):
    site = Site(launch=LaunchTable(target="kubernetes", route=route), pod=SMALL)
    found = launchers.cluster_inventory(site, {})
    assert [each.num_nodes for each in found.kinds] == [2, 1]
    assert reason in found.one_kind_because
    assert bool(found.one_kind_because) is bool(reason)
    assert {each.one_kind_because for each in found.kinds} == {found.one_kind_because}

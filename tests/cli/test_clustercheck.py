"""What `gangline doctor --cluster` says to an account that may do too little."""

import os

import pytest
from tests.cluster.fake.front import kubeconfig, serving
from tests.cluster.fake.server import FakeServer

from gangline.cli.clustercheck import check_cluster
from gangline.cli.desk import Desk
from gangline.spec.site import LaunchTable, Site


@pytest.fixture
def server():
    server = FakeServer()
    server.add_namespace("gangs")
    return server


def findings(server, folder):
    with serving(server) as url:
        environ = {**os.environ, "KUBECONFIG": str(kubeconfig(folder / "config", url))}
        site = Site(launch=LaunchTable(target="kubernetes", namespace="gangs"))
        found, _ = check_cluster(Desk(repo=folder, site=site, environ=environ))
    return {each.name: each for each in found}


def test_missing_rights_are_counted_and_named(server, tmp_path):
    server.denied |= {("create", "jobs.batch"), ("list", "pods")}
    rights = findings(server, tmp_path)["rights"]
    assert not rights.ok
    assert rights.text == "this account lacks 2"
    assert rights.without == "ask for create jobs.batch; list pods"


def test_account_that_may_not_be_looked_at_is_not_called_missing(server, tmp_path):
    server.denied.add(("get", "serviceaccounts"))
    account = findings(server, tmp_path)["account"]
    assert not account.ok
    assert "lacks the right `get` on `serviceaccounts`" in account.text
    assert account.without == "ask for that right"


def test_account_that_is_missing_can_be_made_by_the_command_told(server, tmp_path):
    assert findings(server, tmp_path)["account"].without == "make it: kubectl create serviceaccount gangline-gang"


def test_account_without_a_placer_hears_whether_it_may_place_its_own_gangs(server, tmp_path):
    assert findings(server, tmp_path)["placer"].ok
    server.denied |= {("patch", "pods"), ("patch", "jobs.batch/status"), ("list", "nodes")}
    placer = findings(server, tmp_path)["placer"]
    assert not placer.ok
    assert placer.text == "none"
    assert placer.without.endswith("lacks patch jobs.batch/status; patch pods; list nodes of the cluster")

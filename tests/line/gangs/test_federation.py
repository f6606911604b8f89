"""Where the coordinator of a federated run is: beside the driver, or by its orders in the pod of the gang."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.flare.offers import LAYER, ROSTER, new_plan

from gangline.errors import ConfigError, NotInstalledError
from gangline.flare.offer import read_offer
from gangline.flare.orders import CoordinatorOrders
from gangline.line.gangs import federation
from gangline.line.request.targets import launcher_of
from gangline.spec.config.site_tables import FederationTable
from gangline.spec.gang.driver_orders import coordinator_of
from gangline.storage.objects.blobs import put_blob
from gangline.storage.open import open_store

PROGRAM = """
import os, signal, sys, time
with open(sys.argv[1] + "/pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(600)
"""


def context(plan, *, target="local", **site):
    given = {"kit": "/nonexistent/kit", "admin": "secret:file:/nonexistent/admin"} | site
    return SimpleNamespace(
        plan=plan, record=SimpleNamespace(run=SimpleNamespace(target=target, launcher=launcher_of(target))),
        site=SimpleNamespace(federation=SimpleNamespace(**given)),
    )  # fmt: skip


def started(*_):
    raise AssertionError("no gang was started")


def test_a_run_without_real_members_has_no_coordinator():
    plan = new_plan()
    for each in (replace(plan, federation=None), replace(plan, federation=replace(plan.federation, simulated=True))):
        with federation.carried(context(each), started) as found:
            assert found is started


SECRETS = {"kit": "secret:k8s:gangline-kit/server.tar", "admin": "secret:k8s:gangline-kit-lead/admin.tar"}


@pytest.mark.parametrize(
    ("target", "site", "said"),
    [
        ("slurm", {}, r"launch\.target: wanted local or kubernetes, .* found slurm"),
        ("kubernetes", {}, r"federation\.kit: wanted secret:k8s:NAME/KEY for launch\.target kubernetes"),
        ("local", SECRETS, r"federation\.kit: wanted a folder for launch\.target local"),
    ],
)
def test_a_coordinator_without_its_kits_where_the_gang_runs_is_refused(target, site, said):
    with (
        pytest.raises(ConfigError, match=said),
        federation.carried(context(new_plan(), target=target, **site), started),
    ):
        pass


def test_a_gang_of_pods_names_its_coordinator_and_has_no_kit():
    site = SimpleNamespace(
        federation=FederationTable(**SECRETS, members=ROSTER, image="registry.example/f@sha256:" + "f" * 64)
    )
    plan, pods = new_plan(), launcher_of("kubernetes")
    found = coordinator_of(federation.coordinator_variables(plan, site, pods))
    assert (found.kit, found.admin) == ("gangline-kit/server.tar", "gangline-kit-lead/admin.tar")
    assert (found.service, found.port, found.orders) == ("federation", 8002, f"{plan.run_prefix}/coordinator.json")
    simulated = replace(plan, federation=replace(plan.federation, simulated=True))
    for each in (replace(plan, role="prove"), replace(plan, federation=None), simulated):
        assert federation.coordinator_variables(each, site, pods) == {}
    assert federation.coordinator_variables(plan, site, launcher_of("local")) == {}


def test_orders_lie_in_the_store_before_a_gang_of_pods_begins(tmp_path):
    store, plan = open_store(f"file:{tmp_path / 'store'}"), new_plan()
    given = context(plan, target="kubernetes", **SECRETS)
    given.record.stages = {"build": SimpleNamespace(outputs={"code": put_blob(store, LAYER)})}
    given.site.limits, given.site.sign = SimpleNamespace(run_seconds=100.0), SimpleNamespace(key=None)
    given.store, given.environ = store, {"XDG_CONFIG_HOME": str(tmp_path)}
    with federation.carried(given, started) as found:
        orders = CoordinatorOrders.from_json(store.get(federation.orders_key(plan)).data)
    assert found is started
    offer = read_offer(orders.offer.to_json(), orders.signature)
    assert (offer.terms.plan, orders.wait_seconds) == (plan, 90.0)


def test_another_version_of_nvflare_and_a_kit_that_is_not_there_are_named(monkeypatch):
    monkeypatch.setattr("gangline.flare.server.version", lambda _: "2.8.1")
    with pytest.raises(NotInstalledError, match=r"wanted nvflare 2\.9\.x, found 2\.8\.1"):
        federation.carried(context(new_plan()), started).__enter__()
    monkeypatch.setattr("gangline.flare.server.version", lambda _: "2.9.0")
    with pytest.raises(ConfigError, match="wanted a server kit of NVFlare"):
        federation.carried(context(new_plan()), started).__enter__()

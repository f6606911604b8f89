"""The service in a cluster: one process over its volume, probed where it answers, with the rights of a driver."""

import pytest
from tests.manifests.rendered import named, objects

from gangline.serve.api.service import LOOPBACK
from gangline.serve.web.permissions import MatchedRule, find_rule
from gangline.spec.config.load import load_site

FOUND = objects("serve")


def pod(name="serve"):
    return named(objects(name), "Deployment", "gangline-serve")["spec"]["template"]["spec"]


@pytest.fixture
def site(tmp_path):
    (found,) = [each for each in FOUND if each["kind"] == "ConfigMap"]
    path = tmp_path / "site.toml"
    path.write_text(found["data"]["site.toml"])
    return load_site(path, environ={})


def test_sqlite_and_clones_have_one_process_at_a_time():
    spec = named(FOUND, "Deployment", "gangline-serve")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_home_of_the_service_is_on_its_volume(site):
    (container,) = pod()["containers"]
    places = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    kept = [each["name"] for each in pod()["volumes"] if "persistentVolumeClaim" in each]
    assert [places[name] for name in kept] == [container["workingDir"]]
    assert site.serve.home.startswith(f"{container['workingDir']}/")
    assert site.serve.this_repository is False


def test_secrets_are_references_to_files_that_are_mounted(site):
    mounted = [each["mountPath"] for each in pod()["containers"][0]["volumeMounts"] if each.get("readOnly")]
    references = [site.store.credentials, site.serve.tokens, site.forge["ours"].token, site.forge["ours"].hook_secret]
    for reference in references:
        folder = reference.removeprefix("secret:file:").rpartition("/")[0]
        assert folder in mounted


@pytest.mark.parametrize(("probe", "path"), [
    ("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"),
])  # fmt: skip
def test_probes_ask_open_routes_by_a_name_that_the_service_answers_to(probe, path):
    asked = pod()["containers"][0][probe]["httpGet"]
    assert asked["path"] == path
    found = find_rule("GET", asked["path"])
    assert isinstance(found, MatchedRule)
    assert found.rule.scope == "open"
    assert next(each["value"] for each in asked["httpHeaders"] if each["name"] == "Host") in LOOPBACK


def test_account_has_the_rights_of_a_driver_and_a_reader_and_no_other():
    bindings = [each for each in FOUND if each["kind"].endswith("Binding")]
    assert sorted((each["roleRef"]["name"], each["metadata"].get("namespace", "")) for each in bindings) == [
        ("gangline-driver", "gangline"),
        ("gangline-reader", ""),
    ]
    subjects = {subject["name"] for each in bindings for subject in each["subjects"]}
    assert subjects == {pod()["serviceAccountName"]}
    assert not [each for each in FOUND if each["kind"] in ("Role", "ClusterRole")]


def test_only_labelled_namespaces_reach_its_one_port():
    policy = named(FOUND, "NetworkPolicy", "gangline-serve")["spec"]
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"gangline/ingress": "true"}}}]
    assert [each["port"] for each in rule["ports"]] == ["http"]
    labels = named(FOUND, "Deployment", "gangline-serve")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert named(FOUND, "Service", "gangline-serve")["spec"]["selector"].items() <= labels.items()


def test_password_of_postgresql_is_not_part_of_its_url():
    (container,) = pod("serve-postgres")["containers"]
    (url,) = [each for each in container["command"] if each.startswith("--database=postgresql://")]
    assert url.split("@")[0].count(":") == 1
    (password,) = [each for each in container["env"] if each["name"] == "PGPASSWORD"]
    assert set(password["valueFrom"]) == {"secretKeyRef"}

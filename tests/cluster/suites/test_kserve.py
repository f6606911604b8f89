"""InferenceServices as the real API server judges them, with KServe's own definition; its controller is not here."""

import copy
import os
import secrets
from dataclasses import replace

import pytest
import yaml
from tests.cluster.rig.wait import await_true
from tests.launch.kubernetes.served_versions import IMAGE, KEYS, cases, crd
from tests.registry.passed_run import copy_of, template

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import ApiRejected
from gangline.launch.kubernetes.client.client import connect
from gangline.launch.kubernetes.objects.kserve import serving_objects
from gangline.launch.kubernetes.objects.labels import path_of
from gangline.line.results.kserve_manifest import emit_inference_service
from gangline.registry.versions import read_version
from gangline.spec.config.infer_table import KserveTable
from gangline.spec.config.site import LaunchTable, Site, StoreTable

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
OURS = "gangline-test"
"""Label of a definition that a test made."""


@pytest.fixture(scope="module")
def kserve(cluster):
    """A cluster that knows InferenceServices: its own, or KServe's definition as long as this module runs."""
    definition = crd()
    definition["metadata"]["labels"] = {OURS: "true"}
    made = cluster.kubectl.create_missing([definition])
    name = definition["metadata"]["name"]
    await_true("KServe's kinds", lambda: _serves(cluster), seconds=60)
    yield cluster
    if made:
        cluster.kubectl.run("delete", "crd", name, "--wait=false")


def _serves(cluster):
    return "inferenceservices" in cluster.kubectl.run("api-resources", "--api-group=serving.kserve.io", "-o", "name")


@pytest.fixture
def serving(kserve):
    """An API, and a namespace for servers that demands restricted pods."""
    namespace = f"serving-{secrets.token_hex(4)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kserve.kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}])
    environ = {**os.environ, "KUBECONFIG": str(kserve.kubeconfig)}
    yield connect(environ, namespace=namespace), namespace, environ
    kserve.kubectl.run("delete", "namespace", namespace, "--wait=false")


def objects(name, namespace):
    served, site = cases()[name]
    return serving_objects(served, site=replace(site, kserve=replace(site.kserve, namespace=namespace)), keys=KEYS)


@pytest.mark.row("IN6")
@pytest.mark.parametrize("name", sorted(cases()))
def test_the_api_server_takes_every_field(serving, name):
    api, namespace, _ = serving
    for thing in objects(name, namespace):
        answer = api.create(path_of(thing), thing, dry_run=True)
        assert answer["spec" if "spec" in thing else "data"] == thing["spec" if "spec" in thing else "data"]
    assert api.get(f"{path_of(thing)}/{thing['metadata']['name']}") is None


@pytest.mark.row("IN6")
def test_the_api_server_refuses_a_field_that_kserve_does_not_know(serving):
    api, namespace, _ = serving
    _, thing = objects("standard", namespace)
    thing["spec"]["predictor"]["storageURI"] = "s3://models"
    with pytest.raises(ApiRejected, match="storageURI"):
        api.create(path_of(thing), thing, dry_run=True)


@pytest.mark.row("IN6")
def test_pods_of_servers_may_start_where_only_restricted_ones_may(serving):
    """KServe's controller makes a Deployment of the predictor; here its pod is asked for by dry run."""
    api, namespace, _ = serving
    predictor = objects("standard", namespace)[1]["spec"]["predictor"]
    spec = {key: value for key, value in predictor.items() if key not in ("minReplicas", "maxReplicas")}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": spec}
    made = api.create(f"/api/v1/namespaces/{namespace}/pods", pod, dry_run=True)
    assert not any("projected" in volume for volume in made["spec"]["volumes"])


@pytest.mark.row("IN6")
def test_emit_with_check_asks_the_server(serving, tmp_path, tmp_path_factory):
    _, namespace, environ = serving
    workspace = copy_of(template(tmp_path_factory, "published")[0], tmp_path / "root")
    site = Site(
        store=StoreTable(url="s3://models", endpoint="https://store.example", credentials="secret:env:STORE"),
        kserve=KserveTable(namespace=namespace, image=IMAGE),
        launch=LaunchTable(namespace="gangs"),
    )
    environ = workspace.environ | {"KUBECONFIG": environ["KUBECONFIG"]}
    text = emit_inference_service("bytegpt", store=workspace.store, site=site, environ=environ, check=True)
    assert [each["kind"] for each in yaml.safe_load_all(text)] == ["ConfigMap", "InferenceService"]
    wrong = replace(site, kserve=replace(site.kserve, namespace="there-is-none"))
    with pytest.raises(ConfigError, match="no namespace there-is-none"):
        emit_inference_service("bytegpt", store=workspace.store, site=wrong, environ=environ, check=True)


@pytest.mark.row("IN6")
def test_the_init_container_verifies_in_a_pod_and_stops_it_where_a_file_was_changed(
    serving, kserve, tmp_path, tmp_path_factory
):
    """KServe's controller is not here: its pod is made of the predictor, with a container that lists what it sees."""
    _, namespace, _ = serving
    workspace = copy_of(template(tmp_path_factory, "published")[0], tmp_path / "root")
    prefix = f"kserve-{secrets.token_hex(4)}"
    store = kserve.store(prefix)
    for entry in workspace.store.list(""):
        store.put(entry.key, workspace.store.get(entry.key).data)
    site = Site(
        store=StoreTable(
            url=f"{kserve.store_url}/{prefix}", endpoint=kserve.cluster_endpoint, credentials="secret:env:STORE"
        ),
        kserve=KserveTable(namespace=namespace, image=kserve.train_image),
    )
    key = {"name": site.kserve.secret, "namespace": namespace}
    config, thing = yaml.safe_load_all(
        emit_inference_service("bytegpt", store=store, site=site, environ=workspace.environ)
    )
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": key,
        "stringData": {"store-credentials": kserve.credentials},
    }
    kserve.kubectl.apply([config, secret, pod_of(thing, "good")])
    await_true("a verified pod", lambda: phase(kserve, namespace, "good") == "Succeeded", seconds=120)
    assert "model.sig" in kserve.kubectl.run("logs", "-n", namespace, "good")
    weights = next(file for file in read_version(store, "bytegpt", 1).files if file.path == "model.safetensors")
    data = bytearray(store.get(weights.key).data)
    data[-1] ^= 1
    store.put(weights.key, bytes(data))
    kserve.kubectl.apply([pod_of(thing, "struck")])
    await_true("a refused pod", lambda: phase(kserve, namespace, "struck") == "Failed", seconds=120)
    said = kserve.kubectl.run("logs", "-n", namespace, "struck", "-c", "verify")
    assert weights.path in said


def pod_of(thing, name):
    """The pod of a predictor; `gangline` is called by its module, which the test's image has."""
    predictor = copy.deepcopy(thing["spec"]["predictor"])
    spec = {key: value for key, value in predictor.items() if key not in ("minReplicas", "maxReplicas")}
    (verifier,), (server,) = spec["initContainers"], spec["containers"]
    verifier["command"] = ["python3", "-m", *verifier["command"]]
    for each in ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle"):
        server.pop(each, None)
    server["command"] = ["python3", "-c", "import os; print(os.listdir('/model/version'), os.listdir('/model/code'))"]
    for each in (verifier, server):
        each["resources"] = {}
    metadata = {"name": name, "namespace": thing["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "restartPolicy": "Never"}}


def phase(cluster, namespace, name):
    return cluster.kubectl.read("pod", "-n", namespace, name)["status"].get("phase")

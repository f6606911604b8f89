"""InferenceServices: their golden files, KServe's own schema, and as little right as their pods can have."""

from dataclasses import replace

import jsonschema
import kubernetes_validate
import pytest
import yaml
from tests.launch.kubernetes.crds.test_schemas import strict
from tests.launch.kubernetes.served_versions import BYTEGPT, CHAT, FOLDER, KEYS, PLAIN, cases, crd, drawn
from tests.oracles.restricted_pods import violations

from gangline.errors import ConfigError
from gangline.launch.kubernetes.objects.kserve import heading, serving_objects
from gangline.launch.kubernetes.objects.labels import RUN, path_of
from gangline.spec.config.load import load_site

TEXTS = drawn()
every_case = pytest.mark.parametrize("name", sorted(cases()))


def objects(name):
    served, site = cases()[name]
    return serving_objects(served, site=site, keys=KEYS)


def service(name):
    return objects(name)[1]


def pod(name):
    """As KServe makes it of a predictor, with what our own policy asks of ranks."""
    predictor = service(name)["spec"]["predictor"]
    spec = {key: value for key, value in predictor.items() if key not in ("minReplicas", "maxReplicas", "model")}
    model = predictor.get("model", {})
    container = {key: value for key, value in model.items() if key not in ("modelFormat", "runtime", "protocolVersion")}
    spec.setdefault("containers", [container | {"name": "kserve-container", "image": f"vllm@sha256:{'0' * 64}"}])
    spec["serviceAccountName"] = "gangline-gang"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {RUN: "-"}}, "spec": spec}


@every_case
def test_objects_are_those_of_the_golden_file(name):
    wanted = (FOLDER / f"{name}.yaml").read_text("utf-8")
    again = "read the difference; if it is meant: python -m tests.launch.kubernetes.served_versions"
    assert TEXTS[f"{name}.yaml"] == wanted, again
    assert list(yaml.safe_load_all(wanted)) == list(objects(name))
    assert {path.stem for path in FOLDER.iterdir()} == set(cases())


@pytest.fixture(scope="module")
def schema():
    """That of the InferenceService, unknown fields refused."""
    (version,) = crd()["spec"]["versions"]
    return jsonschema.Draft202012Validator(strict(version["schema"]["openAPIV3Schema"]))


@pytest.mark.row("IN6")
@every_case
def test_kserve_knows_every_field(name, schema):
    thing = service(name)
    assert [error.message for error in schema.iter_errors(thing)] == []
    thing["spec"]["predictor"]["storageURI"] = "s3://models"
    assert [error.validator for error in schema.iter_errors(thing)] == ["additionalProperties"]


@every_case
@pytest.mark.parametrize("version", ["1.31", "1.34", "1.37"])
def test_kubernetes_knows_every_field_of_the_pod_and_of_the_config_map(name, version):
    assert kubernetes_validate.validate(pod(name), version, strict=True) == version
    assert kubernetes_validate.validate(objects(name)[0], version, strict=True) == version


@pytest.mark.row("IN6")
@every_case
def test_pod_is_restricted(name):
    assert {each.control for each in violations(pod(name))} <= {"secret"}  # names of Secrets, as ranks mount them
    spec = pod(name)["spec"]
    assert spec["automountServiceAccountToken"] is False
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"].keys() >= {"cpu", "memory"}


@pytest.mark.row("IN6")
@every_case
def test_only_what_verifies_sees_the_credential_and_only_it_writes_the_model(name):
    predictor = service(name)["spec"]["predictor"]
    (verifier,) = predictor["initContainers"]
    (server,) = predictor.get("containers", [predictor.get("model")])
    mounts = {each["name"]: each for each in server["volumeMounts"]}
    assert mounts.keys() == {"model", "tmp"}
    assert mounts["model"]["readOnly"] is True
    secret = {each["secret"]["secretName"] for each in predictor["volumes"] if "secret" in each}
    assert secret == ({cases()[name][1].kserve.secret} if name != "role" else set())
    assert ("secrets" in {each["name"] for each in verifier["volumeMounts"]}) is bool(secret)
    assert not any("valueFrom" in each for each in verifier["env"])
    assert [each["name"] for each in server["env"] if "valueFrom" in each] == ["GANGLINE_INFER_TOKEN"] * (
        name == "token"
    )


def test_the_token_of_callers_is_demanded_where_the_site_has_one_and_not_promised_where_nothing_asks_for_it():
    server = service("token")["spec"]["predictor"]["containers"][0]
    reference = {"secretKeyRef": {"name": "gangline-infer", "key": "infer-token"}}
    assert {"name": "GANGLINE_INFER_TOKEN", "valueFrom": reference} in server["env"]
    assert "infer-token, the bearer token of callers" in TEXTS["token.yaml"].splitlines()[0]
    assert "guards nothing here" in heading(CHAT, cases()["token"][1])


@every_case
def test_kserve_initializer_is_never_asked_to_fetch(name):
    text = TEXTS[f"{name}.yaml"]
    assert "storageUri" not in text
    assert "STORAGE_URI" not in text


@every_case
def test_images_are_named_by_digest(name):
    images = [each.split()[-1] for each in TEXTS[f"{name}.yaml"].splitlines() if each.strip().startswith("image:")]
    assert images
    assert all("@sha256:" in image for image in images)


def test_what_knative_refuses_is_left_out():
    """Its field mask knows neither."""
    predictor = service("knative")["spec"]["predictor"]
    assert "terminationGracePeriodSeconds" not in predictor
    assert "lifecycle" not in predictor["containers"][0]
    assert [each["name"] for each in predictor["containers"][0]["ports"]] == ["http1"]


def test_a_pod_that_ends_answers_until_gateways_know():
    predictor = service("standard")["spec"]["predictor"]
    spread = predictor["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert predictor["terminationGracePeriodSeconds"] >= spread + 30


def test_the_site_of_the_init_container_is_a_site_with_the_address_of_the_cluster_and_a_file_as_secret(tmp_path):
    site = replace(PLAIN, store=replace(PLAIN.store, cluster_endpoint="http://store.svc:9000"))
    config, _ = serving_objects(BYTEGPT, site=site, keys=KEYS)
    file = tmp_path / "site.toml"
    file.write_text(config["data"]["site.toml"])
    read = load_site(file, environ={})
    assert read.store.endpoint == "http://store.svc:9000"
    assert read.store.credentials == "secret:file:/var/run/gangline/secrets/store-credentials"
    assert set(read.sign.identities) == set(KEYS)


def test_a_language_model_is_loaded_from_safetensors_and_asks_no_hub():
    model = service("language-model")["spec"]["predictor"]["model"]
    assert model["args"] == ["--model_name=chat", "--model_dir=/model/version/files/out", "--load-format=safetensors"]
    assert {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} <= {each["name"] for each in model["env"]}
    assert "trust" not in TEXTS["language-model.yaml"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kserve": replace(PLAIN.kserve, namespace=None)}, "kserve.namespace: wanted a namespace for servers"),
        ({"kserve": replace(PLAIN.kserve, image=None)}, "kserve.image: wanted the image of the server by digest"),
        ({"store": replace(PLAIN.store, url="file:/srv/store")}, "store.url: wanted s3://BUCKET/PREFIX for pods"),
    ],
)
def test_a_site_that_cannot_serve_is_refused_with_what_it_lacks(change, said):
    with pytest.raises(ConfigError, match=said):
        serving_objects(BYTEGPT, site=replace(PLAIN, **change), keys=KEYS)


def test_objects_have_collections():
    config, thing = objects("standard")
    assert path_of(config) == "/api/v1/namespaces/serving/configmaps"
    assert path_of(thing) == "/apis/serving.kserve.io/v1beta1/namespaces/serving/inferenceservices"

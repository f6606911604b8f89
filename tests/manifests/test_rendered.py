"""What an administrator applies: rendered as its sources say, known to the API, and as small as it can be."""

import re
import shutil
import subprocess

import pytest
import yaml
from tests.cluster.fake.strict import validator
from tests.manifests.rendered import RENDERED, ROOT, RUN, SOURCES, WHOLE, named, objects
from tests.oracles.restricted_pods import violations

from gangline.launch.kubernetes.cluster import rights
from gangline.launch.kubernetes.cluster.rights import single

KUBERNETES = ("1.31", "1.34")
CUSTOM = ("kueue.x-k8s.io", "monitoring.coreos.com")
"""Groups whose schemas are nobody's here."""
CLUSTER_WIDE = {"Namespace", "PriorityClass", "ClusterRole", "ClusterRoleBinding", "Topology", "ResourceFlavor"}
CLUSTER_WIDE |= {"ClusterQueue", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
ALL = list({repr(each): (name, each) for name in reversed(SOURCES) for each in objects(name)}.values())
"""Each once: overlays repeat most of the base."""
BUILT_IN = [(name, each) for name, each in ALL if each["apiVersion"].split("/")[0] not in CUSTOM]
whole = pytest.mark.parametrize("name", WHOLE)
run = pytest.mark.parametrize("name", RUN)


def identity(pair):
    name, body = pair
    return f"{name}-{body['kind']}-{body['metadata']['name']}"


every_object = pytest.mark.parametrize(("name", "body"), ALL, ids=map(identity, ALL))


def kubectl():
    from tests.cluster.servers.build import program

    found = shutil.which("kubectl") or program("kubectl")
    try:
        subprocess.run([str(found), "version", "--client"], check=True, capture_output=True)
    except OSError:
        pytest.skip("kubectl is not here, so nothing is rendered anew; make cluster-up builds it")
    return str(found)


@pytest.mark.parametrize("name", SOURCES)
def test_rendered_file_is_what_its_sources_render_to(name):
    """To update: kubectl kustomize manifests/SOURCE > manifests/rendered/NAME.yaml, and read the difference."""
    done = subprocess.run([kubectl(), "kustomize", ROOT / SOURCES[name]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (RENDERED / f"{name}.yaml").read_text()


def test_every_rendered_file_has_a_source():
    assert {path.stem for path in RENDERED.glob("*.yaml")} == set(SOURCES)


@pytest.mark.parametrize(("name", "body"), BUILT_IN, ids=map(identity, BUILT_IN))
def test_object_is_known_to_the_api_to_its_last_field(name, body):
    for version in KUBERNETES:
        schema = validator(body["apiVersion"], body["kind"], version)
        assert schema is not None
        assert [error.message for error in schema.iter_errors(body)] == []


@every_object
def test_object_is_labelled_and_knows_its_namespace(name, body):
    assert body["metadata"]["labels"]["app.kubernetes.io/part-of"] == "gangline"
    assert ("namespace" in body["metadata"]) is (body["kind"] not in CLUSTER_WIDE)


@run
def test_images_are_named_by_digest(name):
    found = re.findall(r"image: (\S+)", (RENDERED / f"{name}.yaml").read_text())
    assert found
    assert all(re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", image) for image in found)


@run
def test_our_own_pods_keep_to_what_is_asked_of_gangs_but_for_their_token(name):
    deployments = [each for each in objects(name) if each["kind"] == "Deployment"]
    assert deployments
    for each in deployments:
        template = each["spec"]["template"]
        found = violations(template, account=template["spec"]["serviceAccountName"])
        assert {violation.control for violation in found} <= {"run", "token", "secret"}
        (container,) = template["spec"]["containers"]
        assert set(container["resources"]) == {"requests", "limits"}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


@whole
def test_namespaces_are_restricted_bounded_and_closed(name):
    found = objects(name)
    for namespace in [each for each in found if each["kind"] == "Namespace"]:
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        inside = [each for each in found if each["metadata"].get("namespace") == namespace["metadata"]["name"]]
        assert {"ResourceQuota", "LimitRange", "NetworkPolicy"} <= {each["kind"] for each in inside}
        closed = [each["spec"] for each in inside if each["kind"] == "NetworkPolicy"]
        assert any(each["podSelector"] == {} and each["policyTypes"] == ["Ingress", "Egress"] for each in closed)


def roles(name):
    return [each for each in objects(name) if each["kind"] in ("Role", "ClusterRole")]


@whole
def test_no_right_is_a_star_and_no_secret_is_read(name):
    for role in roles(name):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if "secrets" in rule["resources"]:
                assert set(rule["verbs"]) <= {"create", "update"}  # a patch shows what it patches


@whole
def test_nothing_is_written_to_the_whole_cluster_and_no_right_is_given_away(name):
    for role in roles(name):
        verbs = {verb for rule in role["rules"] for verb in rule["verbs"]}
        groups = {group for rule in role["rules"] for group in rule["apiGroups"]}
        if role["kind"] == "ClusterRole":
            assert verbs <= {"get", "list", "watch"}
        assert "rbac.authorization.k8s.io" not in groups
        assert not verbs & {"bind", "escalate", "impersonate", "deletecollection"}


@whole
def test_account_of_ranks_is_bound_to_nothing(name):
    bound = [
        subject["name"]
        for each in objects(name)
        if each["kind"].endswith("Binding")
        for subject in each.get("subjects", ())
    ]
    assert "gangline-gang" not in bound
    assert "default" not in bound
    account = named(objects(name), "ServiceAccount", "gangline-gang")
    assert account["automountServiceAccountToken"] is False


TABLES = {
    ("Role", "gangline-driver"): rights.DRIVER,
    ("Role", "gangline-placer"): rights.PLACER,
    ("Role", "gangline-sweeper"): rights.SWEEPER,
    ("ClusterRole", "gangline-placer"): rights.PLACER_CLUSTER,
    ("ClusterRole", "gangline-reader"): rights.READER,
}


@pytest.mark.row("A1")
@pytest.mark.parametrize(("kind", "name"), TABLES)
def test_role_gives_what_the_table_of_rights_says_no_more_no_less(kind, name):
    role = named(objects("test"), kind, name)
    given = {
        (group, resource, verb, only)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for only in rule.get("resourceNames", [""])
    }
    assert given == {(right.group, right.resource, verb, only) for right, verb, only in single(TABLES[kind, name])}


def test_who_drives_is_a_driver_and_a_reader():
    drives, reads = (
        {
            subject["name"]
            for name in ("test", "serve", "kfp")
            for each in objects(name)
            if each["kind"] in ("RoleBinding", "ClusterRoleBinding") and each["roleRef"]["name"] == role
            for subject in each["subjects"]
        }
        for role in ("gangline-driver", "gangline-reader")
    )
    assert drives == reads == {"gangline-driver", "gangline-serve", "pipeline-runner"}


@whole
def test_overlays_need_no_kinds_of_the_prometheus_operator(name):
    assert {each["apiVersion"].split("/")[0] for each in objects(name)} & {"monitoring.coreos.com"} == set()


def test_objects_of_kueue_are_in_the_version_that_it_stores():
    found = {each["apiVersion"] for each in objects("kueue") if each["apiVersion"].startswith("kueue.")}
    assert found == {"kueue.x-k8s.io/v1beta2"}


def test_kueue_overlay_has_no_placer_and_none_of_its_rights():
    assert "gangline-placer" not in {each["metadata"]["name"] for each in objects("kueue")}


def test_site_file_in_the_cluster_is_one_that_the_product_reads(tmp_path):
    from gangline.spec.config.load import load_site

    found = next(each for each in objects("base") if each["kind"] == "ConfigMap")
    path = tmp_path / "site.toml"
    path.write_text(found["data"]["site.toml"])
    site = load_site(path, environ={})
    assert (site.launch.target, site.launch.namespace) == ("kubernetes", "gangline")


@run
def test_whatever_runs_for_ever_has_probes_that_the_time_of_its_file_or_its_answer_fails(name):
    for each in [each for each in objects(name) if each["kind"] == "Deployment"]:
        (container,) = each["spec"]["template"]["spec"]["containers"]
        assert {"startupProbe", "livenessProbe"} <= container.keys(), each["metadata"]["name"]
        if "--alive" in (command := container["command"]):
            file = command[command.index("--alive") + 1]
            probes = [container[kind]["exec"]["command"] for kind in ("startupProbe", "livenessProbe")]
            assert all(file in " ".join(probe) for probe in probes)


@pytest.mark.parametrize("name", ["base", "serve", "serve-postgres"])
def test_deployments_run_commands_that_exist(name):
    from typer.testing import CliRunner

    from gangline.cli.main import app

    for each in [each for each in objects(name) if each["kind"] == "Deployment"]:
        program, *arguments = each["spec"]["template"]["spec"]["containers"][0]["command"]
        assert program == "gangline"
        result = CliRunner().invoke(app, [arguments[0], "--help"])
        assert result.exit_code == 0, result.output
        options = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
        assert all(option in result.output for option in options)


def test_sources_are_yaml_that_says_nothing_twice():
    for path in ROOT.rglob("*.yaml"):
        for each in yaml.safe_load_all(path.read_text()):
            assert each, path

"""Versions of what is installed in a cluster, and the table of those that were seen to work."""

from pathlib import Path

import pytest
from tests.cluster.fake.api import FakeApi

from gangline.launch.kubernetes.client.api import ApiForbidden
from gangline.launch.kubernetes.cluster.components import COMPONENTS, installed, table
from gangline.launch.kubernetes.cluster.rights import READER

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "cluster-setup.md"
SERVERS = Path(__file__).parents[3] / "cluster" / "servers"
IMAGES = {
    "kueue-system/kueue-controller-manager": "registry.k8s.io/kueue/kueue:v0.19.2",
    "jobset-system/jobset-controller-manager": "registry:5000/jobset/jobset:v0.20.1@sha256:ab",
    "kubeflow-system/kubeflow-trainer-controller-manager": "registry:5000/trainer@sha256:ab12",
    "kubeflow/ml-pipeline": "ghcr.io/kubeflow/kfp-api-server:2.17.0",
}
GROUPS = ("kueue.x-k8s.io/v1beta2", "jobset.x-k8s.io/v1alpha2", "trainer.kubeflow.org/v1alpha1", "argoproj.io/v1alpha1")


class Cluster:
    """Serves some groups, and shows the controllers of IMAGES to whoever may see them."""

    def __init__(self, *groups, kinds=(), denied=False):
        self.groups, self.kinds, self.denied = groups, kinds, denied

    def read(self, path, query=None):
        if path == "/version":
            return {"major": "1", "minor": "36", "gitVersion": "v1.36.0-eks-1"}
        if path == "/openapi/v3":
            return {"paths": {"api/v1": {}, **{f"apis/{group}": {} for group in self.groups}}}
        return {"resources": [{"name": name} for name in self.kinds]}

    def get(self, path):
        if self.denied:
            raise ApiForbidden("deployments")
        _, _, _, _, _, namespace, _, name = path.split("/")
        image = IMAGES.get(f"{namespace}/{name}")
        containers = [{"image": "registry:5000/proxy@sha256:12"}, {"image": image}]
        return {"spec": {"template": {"spec": {"containers": containers}}}} if image else None


def versions(cluster):
    return {component.name: version for component, version in installed(cluster)}


def test_versions_are_those_of_the_controllers_images_and_unknown_without_a_tag():
    found = {"kubernetes": "1.36.0-eks-1", "kueue": "0.19.2", "jobset": "0.20.1", "trainer": "", "argo": ""}
    assert versions(Cluster(*GROUPS)) == found


def test_reader_may_see_every_controller_that_is_looked_for_and_no_other():
    api = FakeApi(rights=READER)
    for name in {place.rpartition("/")[2] for component in COMPONENTS for place in component.places}:
        assert api.get(f"/apis/apps/v1/namespaces/somewhere/deployments/{name}") is None, "it may, and there is none"
    with pytest.raises(ApiForbidden):
        api.get("/apis/apps/v1/namespaces/somewhere/deployments/another")
    (right,) = (each for each in READER if each.group == "apps")
    assert len(right.names) == len({place.rpartition("/")[2] for each in COMPONENTS for place in each.places})


def test_what_this_account_may_not_see_has_no_version():
    found = versions(Cluster("kueue.x-k8s.io/v1beta2", denied=True))
    assert found == {"kubernetes": "1.36.0-eks-1", "kueue": ""}


@pytest.mark.parametrize(
    ("groups", "kinds", "is_there"),
    [
        (["kubeflow.org/v1beta1"], ["scheduledworkflows"], True),
        (["kubeflow.org/v1beta1"], ["notebooks"], False),
        (["pipelines.kubeflow.org/v2beta1"], [], True),
    ],
)
def test_pipelines_are_distinguished_from_other_parts_of_kubeflow(groups, kinds, is_there):
    assert ("pipelines" in versions(Cluster(*groups, kinds=kinds))) is is_there


def test_a_release_that_was_seen_is_ok_and_another_is_not_called_broken():
    kubernetes = COMPONENTS[0]
    assert kubernetes.verdict("1.34.9") == "1.34.9 ok (seen: 1.34.4)"
    assert kubernetes.verdict("1.36.0-eks-1") == "1.36.0-eks-1 not seen (seen: 1.34.4)"
    assert versions(FakeApi()) == {"kubernetes": "1.34.4"}


def test_the_guide_has_the_table():
    assert table() in GUIDE.read_text("utf-8"), f"write into {GUIDE.name}:\n\n{table()}"


@pytest.mark.parametrize(
    ("name", "server", "module"),
    [
        ("kubernetes", "kubernetes", "k8s.io/kubernetes"),
        ("jobset", "operators", "sigs.k8s.io/jobset"),
        ("trainer", "operators", "github.com/kubeflow/trainer/v2"),
        ("kueue", "operators", "sigs.k8s.io/kueue"),
    ],
)
def test_what_the_test_cluster_runs_is_in_the_table(name, server, module):
    lines = (SERVERS / server / "go.mod").read_text().splitlines()
    (version,) = {line.split(f"{module} v")[1].split()[0] for line in lines if f"{module} v" in line}
    assert version in next(each.tested_versions for each in COMPONENTS if each.name == name)

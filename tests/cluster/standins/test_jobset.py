"""The stand-in for JobSet's CRD says what Trainer's runtime says of a JobSet, and nothing more."""

from tests.cluster.standins.jobset import jobset_crd

SPEC = {"type": "object", "properties": {"suspend": {"type": "boolean"}}}
TEMPLATE = {"properties": {"metadata": {"type": "object"}, "spec": SPEC}}
RUNTIME = {"properties": {"spec": {"properties": {"template": TEMPLATE}}}}
CRD = {"spec": {"versions": [{"name": "v1alpha1", "schema": {"openAPIV3Schema": RUNTIME}}]}}


def test_spec_is_lifted_whole_and_status_is_open():
    version = jobset_crd(CRD)["spec"]["versions"][0]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    assert properties["spec"] == SPEC
    assert properties["status"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def test_names_are_those_of_jobset():
    spec = jobset_crd(CRD)["spec"]
    assert (spec["group"], spec["names"]["kind"], spec["versions"][0]["name"]) == (
        "jobset.x-k8s.io", "JobSet", "v1alpha2",
    )  # fmt: skip

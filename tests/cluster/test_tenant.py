"""Namespaces of tests are those of the manifests, under another name."""

from tests.cluster import tenant


def test_namespace_comes_first_and_enforces_the_restricted_profile():
    first = tenant.objects("mine")[0]
    assert (first["kind"], first["metadata"]["name"]) == ("Namespace", "mine")
    assert first["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_everything_of_a_tenant_moves_with_it():
    found = tenant.objects("mine")
    assert {each["metadata"]["namespace"] for each in found[1:]} == {"mine"}
    assert {"ResourceQuota", "ServiceAccount", "NetworkPolicy", "Role"} <= {each["kind"] for each in found}


def test_what_the_cluster_shares_belongs_to_no_namespace():
    found = tenant.shared_objects()
    assert {each["metadata"].get("namespace") for each in found} == {None}
    assert {"gangline-low", "gangline-normal", "gangline-high"} <= {each["metadata"]["name"] for each in found}

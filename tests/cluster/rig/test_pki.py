"""Certificates of the test cluster: signed by the right authority, private, made once."""

import json

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.cluster.rig import pki


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("keys") / "pki"
    pki.make_keys(made)
    return made


def certificate(folder, name):
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


@pytest.mark.parametrize(
    ("name", "authority", "purpose"),
    [
        ("apiserver", "ca", ExtendedKeyUsageOID.SERVER_AUTH),
        ("kubelet-serving", "ca", ExtendedKeyUsageOID.SERVER_AUTH),
        ("admin", "ca", ExtendedKeyUsageOID.CLIENT_AUTH),
        ("kubelet", "ca", ExtendedKeyUsageOID.CLIENT_AUTH),
        ("front-proxy", "front-proxy-ca", ExtendedKeyUsageOID.CLIENT_AUTH),
    ],
)
def test_certificate_is_for_one_purpose_and_signed_by_its_authority(folder, name, authority, purpose):
    found = certificate(folder, name)
    found.verify_directly_issued_by(certificate(folder, authority))
    assert list(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [purpose]


def test_node_is_who_its_certificate_says(folder):
    subject = certificate(folder, "kubelet").subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:gangline-0"
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"


def test_what_is_secret_is_for_its_owner_alone(folder):
    secret = [path for path in folder.iterdir() if path.suffix in (".key", ".kubeconfig")]
    assert len(secret) > 10
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}


def test_kubeconfig_reaches_loopback_alone(folder):
    reported = json.loads((folder / "admin.kubeconfig").read_text())
    assert reported["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")


def test_complete_set_is_left_alone_and_half_a_set_made_again(tmp_path):
    folder = tmp_path / "pki"
    pki.make_keys(folder)
    before = (folder / "ca.crt").read_bytes()
    pki.make_keys(folder)
    assert (folder / "ca.crt").read_bytes() == before
    (folder / "complete").unlink()
    pki.make_keys(folder)
    assert (folder / "ca.crt").read_bytes() != before

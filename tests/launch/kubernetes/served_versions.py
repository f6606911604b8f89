"""Versions as `gangline emit kserve` serves them; golden files: `python -m tests.launch.kubernetes.served_versions`."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

from gangline.launch.kubernetes.objects.kserve import ServedVersion, heading, serving_objects
from gangline.launch.kubernetes.objects.manifest import to_yaml
from gangline.spec.config.infer_table import KserveTable, SiteInferTable
from gangline.spec.config.site import PodTable, Site, StoreTable

FOLDER = Path(__file__).parents[2] / "golden" / "kserve"
CRD = Path(__file__).parent / "crds" / "schemas" / "kserve-0.20.0.json.gz"
IMAGE = f"registry.example/gangline/infer@sha256:{'ab' * 32}"
PEM = b"-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n"
KEYS = {"b71f09aa": PEM, "0c44e2d1": PEM}
BYTEGPT = ServedVersion(name="bytegpt-champion", model="bytegpt", version=7, commit="9f31c2a0" * 5)
CHAT = replace(BYTEGPT, name="chat", model="chat", version=3, hugging_face="files/out")
STORE = StoreTable(url="s3://models/team", endpoint="https://store.example:9000", credentials="secret:env:STORE")
PLAIN = Site(store=STORE, kserve=KserveTable(namespace="serving", image=IMAGE))


def crd():
    """The CustomResourceDefinition, whole."""
    return json.loads(gzip.decompress(CRD.read_bytes()))


def cases():
    """Name to (version, site)."""
    gpu = {"nvidia.com/gpu": "1", "memory": "48Gi"}
    large = replace(PLAIN.kserve, resources=gpu, min_replicas=2, max_replicas=4)
    pods = PodTable(pull_secrets=("pull",), selector={"zone": "a"}, tolerate=("gpu",), user=1000, disk_bytes=80e9)
    role = replace(PLAIN, store=replace(STORE, credentials="aws:role", region="eu-west-1"))
    knative = replace(PLAIN, kserve=replace(PLAIN.kserve, mode="Knative", min_replicas=0, secret="reader"))
    guarded = replace(PLAIN, infer=SiteInferTable(token="secret:env:TOKEN", max_request_bytes=1e6))
    return {
        "token": (BYTEGPT, guarded),
        "standard": (BYTEGPT, PLAIN),
        "knative": (BYTEGPT, knative),
        "role": (BYTEGPT, role),
        "language-model": (CHAT, replace(PLAIN, kserve=large, pod=pods)),
    }


def drawn():
    """File name to text."""
    texts = {}
    for name, (served, site) in cases().items():
        texts[f"{name}.yaml"] = heading(served, site) + to_yaml(serving_objects(served, site=site, keys=KEYS))
    return texts


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in drawn().items():
        (FOLDER / name).write_text(text, "utf-8")

"""The rendered manifests, read."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2] / "manifests"
RENDERED = ROOT / "rendered"
SOURCES = {
    "base": "base",
    "kfp": "kfp",
    "monitoring": "monitoring",
    "serve": "serve",
    "serve-postgres": "serve-postgres",
    "test": "overlays/test",
    "gpu-pool": "overlays/gpu-pool",
    "kueue": "overlays/kueue",
    "federation-member": "federation-member",
}
"""Rendered file, without its ending, to the folder it comes from."""
WHOLE = ("base", "test", "gpu-pool", "kueue")
RUN = (*WHOLE, "serve", "serve-postgres")
"""Those with pods of ours."""

Object = dict[str, Any]


def objects(name: str) -> list[Object]:
    text = (RENDERED / f"{name}.yaml").read_text()
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def named(found: list[Object], kind: str, name: str) -> Object:
    (one,) = [each for each in found if each["kind"] == kind and each["metadata"]["name"] == name]
    return one

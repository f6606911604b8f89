"""Extras of the package at their oldest and their newest versions: import, then a slice of their tests.

Each gets an environment of its own below the folder of `make test-versions`, as a newcomer's installer makes it:
without our locks, once with the lowest versions that `pyproject.toml` allows, once with the highest.
"""

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.versions.combination import ROOT, Check

TOOLS = ("pytest", "pytest-timeout", "hypothesis")
"""Newest; what the slices need beside these is named with them."""
RESOLUTIONS = ("lowest-direct", "highest")
MOST_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Extra:
    name: str
    modules: tuple[str, ...]
    """Modules of ours that import its packages."""
    slice: tuple[str, ...] = ()
    """Tests, in the words of pytest; none: the import is all that runs without a server."""
    needs: tuple[str, ...] = ()


EXTRAS = (
    Extra("s3", ("gangline.storage.s3.store", "gangline.storage.s3.aws_identities"),
          ("tests/storage/test_open.py", "tests/storage/s3/test_aws_identities.py")),
    Extra("kubernetes", ("kubernetes.client", "gangline.launch.kubernetes.client.auth"),
          ("tests/launch/kubernetes/client/test_auth.py",), ("jsonschema", "kubernetes-validate")),
    Extra("kfp", ("kfp.kubernetes", "gangline.kfp.compiler"), ("tests/kfp/test_kfp_quirks.py",)),
    Extra("publish", ("model_signing", "gangline.registry.folder_signature", "gangline.signing.sbom"),
          ("tests/signing",)),
    Extra("images", ("urllib3", "gangline.build.oci", "gangline.signing.sbom"), ("tests/build/oci",)),
    Extra("serve", ("gangline.serve.app",), ("tests/serve/test_access.py",), ("httpx",)),
    Extra("postgres", ("psycopg", "gangline.serve.database.postgres")),
    Extra("search", ("gangline.search.study", "gangline.spec.config.toml_text"),
          ("tests/contracts/search", "tests/search/test_journal.py", "tests/search/test_space.py")),
    Extra("mlflow", ("mlflow.tracking", "gangline.trackers.mlflow"), ("tests/trackers/test_recorded.py",)),
    Extra("wandb", ("wandb", "gangline.trackers.wandb")),
    Extra("tensorboard", ("tensorboardX", "gangline.trackers.tensorboard")),
    Extra("data", ("gangline.data.pack", "gangline.data.added", "gangline.data.sources", "gangline.data.cache"),
          ("tests/data/test_arrow_shards.py", "tests/data/test_pack.py", "tests/data/test_versions.py",
           "tests/data/test_cache.py", "tests/data/test_sources.py"), ("tokenizers",)),
    Extra("boards", ("grafana_foundation_sdk.builders.dashboard",)),
)  # fmt: skip


WITH_TORCH = ("train", "transformers", "lightning", "accelerate", "infer", "federated")
"""Extras that are left out: pairs run `train` with three releases of torch, the default suite the others as locked."""


def check_extra(extra: Extra, *, resolution: str, python: Path, uv: Path, folder: Path) -> Check:
    """Install, import and test `extra` with `lowest-direct` or `highest` versions."""
    began = time.monotonic()
    place = folder / "extras" / f"{extra.name}-{resolution}"
    own = str(place / "bin" / "python")
    steps = [
        [uv, "venv", "-q", "--clear", "--python", python, place],
        [uv, "pip", "install", "-q", "--python", own, "--resolution", resolution, "-e", f"{ROOT}[{extra.name}]"],
        [uv, "pip", "install", "-q", "--python", own, *TOOLS, *extra.needs],
        [own, "-c", f"import {', '.join(extra.modules)}"],
    ]
    if extra.slice:
        steps.append([own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not tools", *extra.slice])
    log = folder / "logs" / f"{place.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environ = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    passed = True
    with log.open("wb") as out:
        for step in steps:
            passed = passed and subprocess.run(
                step, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                check=False, timeout=MOST_SECONDS,
            ).returncode == 0  # fmt: skip
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    said = lines[-1] if lines else "imported"
    return Check(name=place.name, passed=passed, seconds=time.monotonic() - began, said=said)

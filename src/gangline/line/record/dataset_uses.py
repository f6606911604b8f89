"""Runs and models that name a version of a data set: they made it, or were trained on it."""

import re

from gangline.line.record.runs import list_runs
from gangline.registry.versions import read_version
from gangline.spec.dataset import dataset_key
from gangline.storage.objects.protocol import ObjectStore, list_all

_VERSION = re.compile(r"models/([^/]+)/(\d+)\.json")


def dataset_uses(store: ObjectStore, name: str, version: str) -> tuple[list[str], list[str]]:
    """Runs that made the version and are kept, and those that were trained on it with their models, as messages name
    them: `run demo-9f31c2a0-k7q2mx`, `model demo 3`."""
    reference, key = f"{name}@{version}", dataset_key(name, version)
    made, used = list[str](), list[str]()
    for record in list_runs(store):
        if any(artifact.key == key for artifact in record.artifacts):
            made.append(f"run {record.run.id}")
        elif reference in record.inputs.datasets:
            used.append(f"run {record.run.id}")
    matches = [match for entry in list_all(store, "models/") if (match := _VERSION.fullmatch(entry.key))]
    versions = [each for match in matches if (each := read_version(store, match[1], int(match[2]))) is not None]
    used += [f"model {each.model} {each.version}" for each in versions if reference in each.inputs.get("datasets", ())]
    return made, used

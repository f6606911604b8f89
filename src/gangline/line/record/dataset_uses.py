"""Runs and models that were trained on a version of a data set."""

import re

from gangline.line.record.runs import list_runs
from gangline.registry.versions import read_version
from gangline.storage.objects.protocol import ObjectStore, list_all

_VERSION = re.compile(r"models/([^/]+)/(\d+)\.json")


def dataset_uses(store: ObjectStore, reference: str) -> list[str]:
    """`run demo-9f31c2a0-k7q2mx` and `model demo 3`, of all records and models that name `NAME@VERSION`."""
    runs = [f"run {each.run.id}" for each in list_runs(store) if reference in each.inputs.datasets]
    found = [match for entry in list_all(store, "models/") if (match := _VERSION.fullmatch(entry.key))]
    versions = [version for match in found if (version := read_version(store, match[1], int(match[2]))) is not None]
    return runs + [
        f"model {each.model} {each.version}" for each in versions if reference in each.inputs.get("datasets", ())
    ]

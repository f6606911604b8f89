"""Differences of two runs that are not in their records: changed files, packages, the band of the base's curve."""

import json
import re

from gangline.git.repository import Repository
from gangline.line.results.band import learn_curve_bands
from gangline.report.comparison.types import ComparisonContext, FileChange
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)")
_FLOOR_PERCENT = 0.1


def read_differences(
    store: ObjectStore, repository: Repository | None, base: Record, this: Record
) -> ComparisonContext:
    """What is available of it: commits may be missing in the clone, and SBOMs or locks may not exist."""
    before, after = (_packages(store, repository, record) for record in (base, this))
    both = bool(before and after)
    return ComparisonContext(
        files=_files(repository, base, this),
        base_packages=before if both else {},
        this_packages=after if both else {},
        bands=_bands(base),
    )


def _files(repository: Repository | None, base: Record, this: Record) -> tuple[FileChange, ...]:
    trees = (base.commit.tree, this.commit.tree)
    if repository is None or not all(map(repository.has, trees)):
        return ()
    return tuple(FileChange(path=path, added=plus, removed=minus) for path, plus, minus in repository.counts(*trees))


def _packages(store: ObjectStore, repository: Repository | None, record: Record) -> dict[str, str]:
    """Packages of the SBOM that was published with the model; else of the lock in the commit."""
    sbom = next((artifact.key for artifact in record.artifacts if artifact.kind == "sbom"), None)
    blob = store.get(sbom) if sbom else None
    if blob is not None:
        components = json.loads(blob.data).get("components", [])
        return {
            str(component["name"]): str(component.get("version", "")) for component in components if "name" in component
        }
    lock = record.inputs.values.get("env.lock")
    if not lock or repository is None or not repository.has(record.commit.tree):
        return {}
    text = repository.file(record.commit.tree, str(lock)) or b""
    pins = (_PIN.match(line) for line in text.decode(errors="replace").splitlines())
    return {pin[1].lower().replace("_", "-"): pin[2] for pin in pins if pin}


def _bands(base: Record) -> dict[int, tuple[float, float]]:
    learned = learn_curve_bands(base.curve.seed_points, floor_percent=_FLOOR_PERCENT, origin=base.run.id)
    return {
        point.step: (band.low, band.high)
        for point, band in zip(base.curve.points, learned, strict=False)
        if band is not None
    }

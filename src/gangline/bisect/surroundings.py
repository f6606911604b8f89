"""Inputs of a training other than its commit, as they are now: data of the store, packages of an unlocked environment,
files that its ranks read and that no key declares.

A recorded value counts if its run had the same, because a search compares commits, not data or packages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline.build.own_environment import installed_versions, software_versions
from gangline.errors import ConfigError, IntegrityError
from gangline.line.request.run_request import RunRequest
from gangline.line.results.undeclared_reads import changed_since, named
from gangline.line.stages.data_files import read_data
from gangline.line.stages.dataset_versions import DatasetAccess
from gangline.line.stages.tracked_files import find_pointers
from gangline.report.inputs import imported_versions
from gangline.report.text import short
from gangline.signing.record_seal import Sealer
from gangline.spec.config.data_keys import DataAccess
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What surrounds a commit; an empty field does not matter to it, or is not known."""

    data: str = ""
    """Digest of all data, where some is not in the commit."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Packages and Python of an environment without lock."""

    def other_in(self, record: Record) -> str:
        """`data b6467f6e, now bc91679d`: the first that was different in a run; empty if none is known to be."""
        if changed := changed_since(record):
            return f"{named(changed)}, undeclared and changed since"
        if self.data and record.inputs.data not in ("", self.data):
            return f"data {short(record.inputs.data)}, now {short(self.data)}"
        if not self.versions or record.inputs.image is not None or (record.ran is not None and record.ran.foreign):
            return ""
        for name, version in (imported_versions(record) or record.inputs.versions).items():
            now = self.versions.get(name.lower().replace("_", "-"), version)
            if now != version and name != "gangline":
                return f"{name} {version}, now {now}"
        return ""


def surroundings_now(
    request: RunRequest, site: Site, store: ObjectStore, *, environ: Mapping[str, str]
) -> Surroundings:
    """Those that a training of the commit would have now; data that it would not find are not known."""
    line = request.line
    versions = {} if line.env.lock else {**installed_versions(), **software_versions()}
    data = _data_now(request, site, store, environ) if _has_outside_data(line) else ""
    return Surroundings(data=data, versions=versions)


def _has_outside_data(line: Line) -> bool:
    return bool(line.data.shards or line.data.mix) or any(not text.startswith("repo:") for text in line.data.text)


def _data_now(request: RunRequest, site: Site, store: ObjectStore, environ: Mapping[str, str]) -> str:
    access = DataAccess(prefixes=site.store.data, project=request.line.project.name)
    allowed = DatasetAccess(access=access, site=site, trusted=lambda: Sealer.of(site, environ).trusted)
    try:
        if find_pointers(request.repository, request.tree, request.line, commit=request.commit).pointers:
            return ""  # their SHA-256 digests are known once they are fetched
        return read_data(request.repository, request.tree, request.line.data, store=store, allowed=allowed)[1].digest
    except (ConfigError, IntegrityError):
        return ""

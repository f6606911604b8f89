"""Published versions and aliases in the trackers that mirror models; the store is the truth, and nothing is read back.

A mirror never fails a publication or a promotion: what a tracker did not take is a sentence.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from posixpath import commonpath

from gangline.errors import GanglineError
from gangline.line.record.store import read_record
from gangline.metrics.record_values import price_at
from gangline.registry.versions import Alias, Version, alias_key, read_alias, read_version
from gangline.spec.config.site import Site
from gangline.spec.record import Record
from gangline.storage.objects.protocol import ObjectStore, list_all
from gangline.trackers.operations import tracked_run
from gangline.trackers.protocol import MirroredModel
from gangline.trackers.writer_process import WriterProcess, writer_settings

_MOST_MOVES = 16
"""How often an alias may move while it is mirrored."""


def mirror_models(
    store: ObjectStore, model: str, version: int | None = None, *, repo: Path, site: Site, environ: Mapping[str, str]
) -> Iterator[str]:
    """Sentences about what the site's trackers said, once each has `version` and every alias of `model`.

    Args:
        store: Of the model.
        model: Its name.
        version: A version that no alias has to name; None: only those that aliases name.
        repo: Folder of the line.
        site: Names the trackers.
        environ: For secret references.
    """
    for name, table in site.track.items():
        if table.kind != "mlflow" or not table.models:
            continue
        try:
            settings = writer_settings(repo, site, name, environ=environ)
            process = WriterProcess(settings, table=table, environ=environ)
            try:
                process.open()
                yield from _ModelMirror(store, model, name, site, process).write(version)
            finally:
                process.end()
        except GanglineError as error:
            yield f"{name} does not have the model {model} as it is here: {error}; gangline track push completes it"


@dataclass(frozen=True, slots=True)
class _ModelMirror:
    """Mirror of one model in one tracker, whose writer is open."""

    store: ObjectStore
    model: str
    tracker: str
    site: Site
    process: WriterProcess

    def write(self, version: int | None) -> Iterator[str]:
        """Write `version`, then each alias until it is there as the store has it."""
        if version is not None:
            yield from self._send(version, None)
        folder = alias_key(self.model, "")[: -len(".json")]
        for key in [entry.key for entry in list_all(self.store, folder)]:
            name = key.removeprefix(folder).removesuffix(".json")
            alias = read_alias(self.store, self.model, name)
            for _ in range(_MOST_MOVES):
                if alias is None:
                    break
                yield from self._send(alias.version, alias)
                before, alias = alias, read_alias(self.store, self.model, name)
                if alias == before:
                    break

    def _send(self, number: int, alias: Alias | None) -> Iterator[str]:
        version = read_version(self.store, self.model, number)
        record = read_record(self.store, version.record) if version is not None else None
        if version is None or record is None:
            return
        names = record.inputs.values.get("project.track")
        if names is None or self.tracker in names:
            sent = self.process.model(self._mirrored(version, record, alias))
            yield from (f"{self.tracker}: {text}" for text in sent)

    def _mirrored(self, version: Version, record: Record, alias: Alias | None) -> MirroredModel:
        facts = {
            "gangline.run": version.run, "gangline.commit": version.commit, "gangline.weights": version.weights,
            "gangline.plan": version.plan, "gangline.key": version.key,
        } | {f"gangline.metric.{name}": f"{each.get('value')}" for name, each in version.metrics.items()}  # fmt: skip
        experiment = self.site.track[self.tracker].experiment
        return MirroredModel(
            name=version.model, project=version.project, version=version.version,
            source=_source(self.store.url, version), tags=facts,
            run=tracked_run(record, experiment=experiment, price=price_at(self.site)),
            aliases={} if alias is None else {alias.alias: alias.previous},
        )  # fmt: skip


def _source(store: str, version: Version) -> str:
    """Address of the version's files; of a store in a folder, which no other machine reads, that of its key."""
    folder = commonpath([file.key.rpartition("/")[0] for file in version.files])
    root = store.partition("?")[0].rstrip("/") if store.startswith("s3:") else f"gangline://{version.project}"
    return f"{root}/{folder}"

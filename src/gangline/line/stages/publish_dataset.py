"""Outputs of a run as a version of a data set: verified by digest, checked whole, copied into blobs, signed.

The same rules hold as for models: own commits of branches that publish, clean trees, and no gate that says no. The run
is the version's origin, and the version is an artifact of the run.
"""

from dataclasses import replace
from functools import partial

from gangline.data.added import AddedFile, add_files
from gangline.data.journal import PackJournal
from gangline.data.versions import LATEST, set_alias, write_dataset
from gangline.errors import ConfigError, storage_errors
from gangline.line.record.context import RunContext, StageResult, unchanged
from gangline.registry.publish_rules import check_rules
from gangline.registry.run_artifacts import output_key, read_output_list
from gangline.signing.keys import signing_key
from gangline.spec.dataset import DatasetOrigin
from gangline.spec.program_files import OUTPUTS_KIND
from gangline.spec.record import Artifact, Record
from gangline.storage.objects.blobs import object_blocks
from gangline.units import counted, format_bytes

ENDINGS = (".arrow", ".parquet")
"""Outputs that become shards; others are left out."""


def publish_dataset(ctx: RunContext, name: str) -> StageResult:
    """Make the version, or find the one that an earlier try made.

    Raises:
        ConfigError: No output is a shard, or one has another form.
        GateError: A gate says no.
    """
    if (skipped := check_rules(ctx.record, ctx.line)) is not None:
        return StageResult(state="skipped", message=skipped.reason)
    folder = ctx.home / "data"
    with storage_errors(folder):
        folder.mkdir(exist_ok=True)
    journal = PackJournal(folder / f"publish-{ctx.record.run.id}.jsonl")
    made = add_files(
        _outputs(ctx, name), name=name, origin=DatasetOrigin(run=ctx.record.run.id), store=ctx.store, journal=journal,
        folder=folder,
    )  # fmt: skip
    ctx.change(unchanged)  # raises once another driver has the run
    key, trusted = signing_key(ctx.site, ctx.environ), ctx.sealer.trusted
    write_dataset(ctx.store, made, key, trusted)
    set_alias(ctx.store, made, LATEST, key, trusted, who=ctx.record.run.id)
    journal.remove()
    reference, size = f"{name}@{made.version}", sum(shard.size_bytes for shard in made.shards)
    artifact = Artifact(
        kind="dataset", key=made.key, media_type="application/json", size_bytes=len(made.to_json()), sha256=made.digest
    )

    def change(record: Record) -> Record:
        return replace(record, artifacts=(*record.artifacts, artifact))

    return StageResult(
        message=f"{reference}: {counted(made.num_samples, 'sample')} · {counted(len(made.shards), 'shard')} ·"
        f" {format_bytes(size)}, signed by key {key.key_id}",
        key=made.digest,
        outputs={"dataset": reference, "key": made.key},
        change=change,
    )


def _outputs(ctx: RunContext, name: str) -> list[AddedFile]:
    """Files of the run that become shards."""
    listed = read_output_list(ctx.store, ctx.record)
    files = listed.files if listed is not None else ()
    output_files = [file for file in files if file.path.endswith(ENDINGS)]
    if not output_files:
        raise ConfigError(
            f"publish.dataset: wanted outputs that end in {' or '.join(ENDINGS)} for {name}, found none among"
            f" {len(files)} outputs; write them where project.outputs looks"
        )
    list_key = next(artifact.key for artifact in ctx.record.artifacts if artifact.kind == OUTPUTS_KIND)
    return [
        AddedFile(
            path=file.path, size_bytes=file.size_bytes, sha256=file.sha256,
            blocks=partial(
                object_blocks, ctx.store, output_key(list_key, file.sha256), file.size_bytes, name=f"output {file.path}"
            ),
        )
        for file in output_files
    ]  # fmt: skip

"""Stage build: the environment by digest, the code layer and the data as blobs; independent of the run.

Ranks have an environment that is installed from the lock, the site's base image, or an image built from the lock.
Without a lock, ranks on this machine run in the environment of gangline itself, and the run is shown as not locked.
"""

from dataclasses import dataclass, replace
from typing import Any

from gangline.build import code_layer, own_environment
from gangline.build.builders import open_builder
from gangline.build.builders.recipe import Recipe, make_recipe
from gangline.build.image_store import BuiltImage, ImageStore, record_base_image
from gangline.build.images import build_image, find_image
from gangline.build.left_out import LeftOut
from gangline.build.own_environment import editable_packages_in, refuse_work_tree
from gangline.build.virtualenv import CommitLock, LockedCommit, Uv, VirtualEnvironment, find_or_make_environment
from gangline.build.virtualenv.locks import read_commit_lock
from gangline.errors import CapacityError, ConfigError, IntegrityError
from gangline.line.record.context import RunContext, StageResult
from gangline.line.record.states import stage_origin
from gangline.line.request.trust import awaits_approval, data_access
from gangline.line.results.reproducibility import LEFT_OUT
from gangline.line.results.undeclared_reads import TRACKED
from gangline.line.stages.data_files import DatasetAccess, read_data, versions_text
from gangline.line.stages.tracked_files import CommitPointers, fetch_pointers, find_pointers, num_files
from gangline.sanitize import clean
from gangline.signing.keys import signing_key, trusted_keys
from gangline.spec.codec import canonical, digest
from gangline.spec.config.lock import kind_of
from gangline.spec.config.problems import printable
from gangline.spec.data_source import DataSource
from gangline.spec.record import Artifact, Record
from gangline.storage.objects.blobs import PREFIX, put_blob
from gangline.units import format_bytes

_MOST_LEFT_OUT = 20


def build(ctx: RunContext) -> StageResult:
    """Store environment, code and data.

    Raises:
        ConfigError: Lock, code or data is missing, code is only in the work tree, or the data is not that of the line.
        BuildError: The image of the lock could not be built; the message has the end of the log.
    """
    commit = ctx.record.commit
    pointers = find_pointers(ctx.repository, commit.tree, ctx.line, commit=commit.sha)
    layer = code_layer.pack(
        ctx.repository, commit.tree, ctx.line.project, commit=commit.sha, placed=pointers.lfs_paths
    )  # fmt: skip
    for link in layer.links[:5]:
        text = f"{printable(link)} is a link: the code layer holds a copy of what it points at"
        ctx.record_event("build", "copied", text)
    for path in layer.edited[:5]:
        text = f"submodule {printable(path)} has uncommitted changes, which this run does not have"
        ctx.record_event("build", "rules", text)
    code_key = put_blob(ctx.store, layer.data)
    code_digest = code_key.rsplit("/", 1)[1]
    environment = environment_of(ctx)
    if not ctx.record.run.launcher.has_pods and environment.own is None:  # ranks run in this interpreter's environment
        refuse_work_tree(
            layer.data, ctx.line.project, editable_packages_in(ctx.repository.work_tree), folder=layer.folder
        )
    data = _data(ctx, pointers)
    key = digest({"environment": environment.digest, "code": code_digest, "data": data.digest})
    earlier = ctx.find_cached_stage("build", key)

    def change(record: Record) -> Record:
        image = environment.image.reference if environment.image else None
        inputs = replace(
            record.inputs, environment=environment.digest, image=image, code=code_digest, data=data.digest,
            datasets=tuple(f"{dataset_use.name}@{dataset_use.version}" for dataset_use in data.sets),
        )  # fmt: skip
        artifact = Artifact(
            kind="code", key=code_key, media_type="application/zip", size_bytes=len(layer.data), sha256=code_digest
        )
        return replace(record, inputs=inputs, artifacts=(*record.artifacts, artifact, *environment.artifacts))

    return StageResult(
        state="taken" if earlier else "done",
        taken_from=stage_origin(earlier, "build") if earlier else None,
        message=f"environment {environment.digest[:8]} ({environment.source}) · code layer {code_digest[:8]}:"
        f" {layer.files} files, {format_bytes(layer.size_bytes)}"
        + (f"; {layer.left_out}" if layer.left_out.paths else "")
        + (f" · {pointers}" if pointers.pointers else "")
        + (f" · {versions_text(data.sets)}" if data.sets else "")
        + (f" · unchanged since {earlier.run.id}" if earlier else ""),
        key=key,
        outputs={
            "code": code_key,
            "data": put_blob(ctx.store, canonical(data)),
            **_outputs(ctx, environment),
            **({TRACKED: str(pointers)} if pointers.pointers else {}),
            **({LEFT_OUT: _left_out(layer.left_out)} if layer.left_out.paths else {}),
        },
        change=change,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnvironment:
    """Environment of ranks, by digest."""

    digest: str
    source: str
    """Its origin, for people."""
    image: BuiltImage | None = None
    """None: ranks run on the driver's machine."""
    lock: str | None = None
    """Name of the lock in the commit; None if not locked."""
    own: VirtualEnvironment | None = None
    """Installed from the lock on this machine; None: an image, or the environment of gangline."""

    @property
    def outputs(self) -> dict[str, Any]:
        """Outputs of the build stage about it."""
        image = {} if self.image is None else {"image": self.image.reference, "image_log": self.image.log_key}
        return {"lock": self.lock, **image}

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """Provenance and SBOM of the image."""
        if self.image is None:
            return ()
        kinds = {"image-provenance": (self.image.provenance, "application/vnd.dsse.envelope.v1+json"),
                 "image-sbom": (self.image.sbom, "application/vnd.cyclonedx+json")}  # fmt: skip
        return tuple(
            Artifact(kind=kind, key=key, media_type=media_type, size_bytes=size, sha256=key.removeprefix(PREFIX))
            for kind, (key, media_type) in kinds.items()
            if key and (size := self.image.sizes.get(kind)) is not None
        )


def environment_of(ctx: RunContext) -> RunEnvironment:
    """The environment of the run; builds its image if there is none yet.

    Raises:
        ConfigError: The lock is missing or has no hashes, or the site lacks keys for building.
        IntegrityError: A fork needs an image that is not built yet.
        BuildError: The build failed.
    """
    if not ctx.record.run.launcher.has_pods:
        return _of_this_machine(ctx)
    lock = read_commit_lock(ctx.repository, ctx.record.commit.tree, ctx.line.env, _uv(ctx))
    if ctx.site.registry.builder == "none":
        base = _base(ctx)
        if base is None:
            return RunEnvironment(digest=own_environment.interpreter_digest(), source=own_environment.NOT_LOCKED)
        image = record_base_image(base, image_store=_image_store(ctx), commit=ctx.record.commit.sha)
        unread = f"; {ctx.line.env.lock} is not installed: registry.builder is none" if lock is not None else ""
        return RunEnvironment(digest=image.key, source=f"image {_short(image)}, unchanged{unread}", image=image)
    return _of_image(ctx, _recipe(ctx, lock))


def _left_out(found: LeftOut) -> dict[str, Any]:
    """Part of the record on tracked files that ranks do not have."""
    return {"text": str(found), "paths": [clean(path, limit=200) for path in found.paths[:_MOST_LEFT_OUT]]}


def _outputs(ctx: RunContext, environment: RunEnvironment) -> dict[str, Any]:
    """Outputs for later stages: the lock, and the packages installed from it."""
    if (own := environment.own) is None:
        return environment.outputs
    return {
        **environment.outputs,
        "python": own.python,
        "packages": put_blob(ctx.store, canonical(own.manifest.packages)),
        "runtime": dict(own.manifest.added),
    }


def _data(ctx: RunContext, pointers: CommitPointers) -> DataSource:
    """Files of the line's data, and those that DVC or Git LFS track, stored by digest; shards are in the store."""
    allowed = DatasetAccess(access=data_access(ctx.record, ctx.site), site=ctx.site, trusted=lambda: ctx.sealer.trusted)
    commit = ctx.record.commit
    fetched = fetch_pointers(
        pointers, repository=ctx.repository, store=ctx.store, site=ctx.site, environ=ctx.environ,
        project=ctx.record.run.project, trust=commit.trust, spool=ctx.home / "tmp",
        notify=ctx.observer.note,
    )  # fmt: skip
    if fetched.num_fetched:
        ctx.record_event("build", "data", f"fetched {num_files(fetched.num_fetched)} that DVC or Git LFS track")
    texts, source = read_data(
        ctx.repository, commit.tree, ctx.line.data, store=ctx.store, allowed=allowed, fetched=fetched
    )  # fmt: skip
    for text in texts:
        if text.stored is None:
            put_blob(ctx.store, text.data)
    return source


def _of_this_machine(ctx: RunContext) -> RunEnvironment:
    """A fork installs no environment that an own commit has not installed, until it is approved."""
    commit = ctx.record.commit

    def demand() -> None:
        if awaits_approval(ctx.record):
            run = ctx.record.run.id
            raise CapacityError(
                f"{run} is of a fork: the packages of its {ctx.line.env.lock} would be installed here, which a"
                f" maintainer reads first; then: gangline approve {run}"
            )

    own = find_or_make_environment(
        LockedCommit(repository=ctx.repository, tree=commit.tree, line=ctx.line, trust=commit.trust),
        site=ctx.site, environ=ctx.environ, home=ctx.home, with_s3=ctx.store.url.startswith("s3:"),
        notify=ctx.observer.note, before_install=demand,
    )  # fmt: skip
    if own is None:
        return RunEnvironment(digest=own_environment.interpreter_digest(), source=own_environment.NOT_LOCKED)
    return RunEnvironment(digest=own.digest, source=own.source, lock=own.lock, own=own)


def _of_image(ctx: RunContext, recipe: Recipe) -> RunEnvironment:
    image_store = _image_store(ctx)
    if ctx.record.commit.trust == "fork":
        image = find_image(recipe, image_store=image_store)
        if image is None:
            raise IntegrityError(
                f"a fork's {ctx.line.env.lock} is not built with this site's rights, and no image {recipe.tag} is"
                " there; push the lock to a branch of this repository first"
            )
    else:
        builder = open_builder(ctx.site.registry.builder, ctx.environ)
        image = build_image(recipe, builder=builder, image_store=image_store, commit=ctx.record.commit.sha)
    how = (
        f"lock unchanged: image {recipe.tag} reused, 0 s"
        if image.cached
        else f"image {recipe.tag} built by {image.builder} in {image.seconds:.1f} s"
    )
    return RunEnvironment(digest=recipe.key, source=how, image=image, lock=ctx.line.env.lock)


def _recipe(ctx: RunContext, lock: CommitLock | None) -> Recipe:
    registry, base = ctx.site.registry, _base(ctx)
    if lock is None:
        raise ConfigError(
            f"line.toml: env.lock: registry.builder = {registry.builder} wanted a lock to install, found none;"
            " uv pip compile --generate-hashes writes one"
        )
    if registry.image is None or base is None:
        missing = "registry.image" if registry.image is None else "registry.base"
        raise ConfigError(f"site.toml: {missing}: registry.builder = {registry.builder} wanted one, found nothing")
    return make_recipe(
        lock.requirements, base=base, image=registry.image, site_base=registry.base, file=lock.file
    )  # fmt: skip


def _base(ctx: RunContext) -> str | None:
    """Base image; a fork cannot choose its own."""
    own = ctx.line.env.base if ctx.record.commit.trust == "own" else None
    return own or ctx.site.registry.base


def _uv(ctx: RunContext) -> Uv | None:
    """uv, if the lock is its own format."""
    return Uv.find(ctx.environ) if ctx.line.env.lock and kind_of(ctx.line.env.lock) == "uv" else None


def _image_store(ctx: RunContext) -> ImageStore:
    return ImageStore(
        store=ctx.store,
        key=signing_key(ctx.site, ctx.environ),
        trusted=trusted_keys(ctx.site, ctx.environ),
        environ=ctx.environ,
    )


def _short(image: BuiltImage) -> str:
    return f"{image.reference.partition('@')[0].rpartition('/')[2]}@{image.digest.removeprefix('sha256:')[:12]}"

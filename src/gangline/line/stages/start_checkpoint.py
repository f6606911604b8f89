"""The checkpoint of another run that a training starts from: looked at before anything is queued."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NoReturn

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.fused_names import Fusion, fusions
from gangline.checkpoint.format.fused_state import convert
from gangline.checkpoint.format.index import MODEL, Index
from gangline.checkpoint.format.manifest import MANIFEST
from gangline.line.gangs import launchers
from gangline.line.record.store import read_record
from gangline.signing.record_seal import Sealer
from gangline.spec.config.grammar import CHECKPOINT
from gangline.spec.config.line import Line
from gangline.spec.config.problems import ConfigProblem, FileError, show
from gangline.spec.config.site import Site
from gangline.spec.identity import is_run_prefix
from gangline.spec.plan import FusedParameter, Plan
from gangline.spec.profile import ModelProfile
from gangline.spec.record import Record, Trust
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.protocol import ObjectStore

_KEY = "train.start.checkpoint"


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedStart:
    """A checkpoint whose signature, sizes, index and numbers were verified; no weight of it was read."""

    text: str
    """The checkpoint that the run starts from, for its record."""
    weights: Index
    """Its parameters and buffers, by their stored names."""
    fused: tuple[FusedParameter, ...]

    def require_shapes(self, profile: ModelProfile | None) -> None:
        """Require each parameter that the model trains, as far as these are known; ranks see the rest.

        Raises:
            ConfigError: The checkpoint lacks one, or has it in another shape.
        """
        wanted = {parameter.name: parameter.shape for parameter in profile.named} if profile is not None else {}
        if not wanted:
            return
        names = [name.removeprefix(MODEL) for name in self.weights.names(MODEL)]
        converted = convert(self.weights, {}, fusions(self.fused, names, wanted))
        found = {name.removeprefix(MODEL): tensor.shape for name, tensor in converted.tensors.items()}
        unfit = [name for name, shape in wanted.items() if found.get(name) != shape]
        if unfit:
            first = unfit[0]
            more = f" and {len(unfit) - 1} more" if len(unfit) > 1 else ""
            there = f"there in shape {found[first]}" if first in found else "not in the checkpoint"
            works = "use a checkpoint of this model, or name what is fused in [[train.start.fused]]"
            _refuse(_KEY, f"{first} of shape {wanted[first]}, as the model has it", f"{there}{more}", works)


def open_start(
    line: Line, trust: Trust, *, store: ObjectStore, site: Site, environ: Mapping[str, str]
) -> OpenedStart | None:
    """Open the checkpoint that the training of `line` starts from; None: it begins with step 0.

    Raises:
        ConfigError: The run may not read it, it does not exist, has another seed or no step left to train, or the rules
            of fused parameters fit neither it nor what routes say of their rows.
        RefusedCheckpoint: It is damaged, or the project did not sign it.
    """
    start = line.train.start
    if start.checkpoint is None:
        return None
    record = _own_run(line.project.name, trust, start.checkpoint, store=store, sealer=Sealer.of(site, environ))
    key = launchers.checkpoint_key(site, environ, line.project.name)
    folder = CheckpointFolder.open(store, start.checkpoint, key)
    step, numbers = folder.manifest.step, folder.state().numbers
    if step >= (last := line.train.stop_at or line.train.steps):
        _refuse("train.steps", f"more than the {step} of the checkpoint", f"{last}", "count its steps, too")
    if (seed := numbers.get("seed")) != line.train.seed:
        works = "write its seed, or the samples that it trained come again"
        _refuse("train.seed", f"{seed}, as the run of the checkpoint has", f"{line.train.seed}", works)
    weights = {name: tensor for name, tensor in folder.index().tensors.items() if name.startswith(MODEL)}
    found = fusions(start.fused, [name.removeprefix(MODEL) for name in sorted(weights)], ())
    _require_rows(line, found, store, record)
    converted = f"; {len(found)} fused parameters are split or joined" if found else ""
    return OpenedStart(
        text=f"continues from step {step} of {start.checkpoint}, run {folder.manifest.run}{converted}",
        weights=Index(tensors=weights), fused=tuple(start.fused),
    )  # fmt: skip


def _refuse(key: str, wanted: str, found: str, works: str) -> NoReturn:
    raise FileError("line.toml", [ConfigProblem(key, wanted, found, works)])


def _own_run(project: str, trust: Trust, checkpoint: str, *, store: ObjectStore, sealer: Sealer) -> Record:
    """The run that saved it, of the project's own commits as this one is."""
    wanted, of = "a checkpoint of a run of this project", CHECKPOINT.fullmatch(checkpoint)
    if trust != "own":
        works = "a commit of the repository itself may start from it"
        _refuse(_KEY, "nothing in a fork's line", show(checkpoint), works)
    if of is None or not is_run_prefix(of["run"]) or of["project"] != project:
        _refuse(_KEY, wanted, show(checkpoint), f"runs/{project}/... works")
    record = read_record(store, of["run"])
    if record is None or record.commit.trust != "own":
        found = "no run" if record is None else "a run of a fork, whose checkpoints have another key"
        _refuse(_KEY, wanted, f"{show(checkpoint)}, {found}", "gangline list shows the runs")
    if store.head(f"{checkpoint}/{MANIFEST}") is None:
        works = "gangline artifacts RUN lists its checkpoints; the newest ones of a run are kept"
        _refuse(_KEY, wanted, f"{show(checkpoint)}, which is not in the store", works)
    return sealer.check(record)


def _require_rows(line: Line, found: Sequence[Fusion], store: ObjectStore, record: Record) -> None:
    """Where a route says which rows of a fused parameter are whose, the rule says the same.

    Rows of wrong heads have the right shapes: nothing else would notice.
    """
    plan = None if record.plan is None else Plan.from_json(get_blob(store, record.plan.key))
    theirs = [] if plan is None else list(_routes(plan.optimizer))
    ours = list(_routes(line.optimizer))
    for fusion in found:
        said = {name: getattr(fusion.rule, name) for name in ("split", "heads", "kv_heads", "head_dim")}
        for route in theirs if fusion.is_stored_fused else ours:
            split = {name: route.get(name, 0) for name in said}
            if fnmatchcase(fusion.fused, str(route.get("match", ""))) and split["split"] and split != said:
                whose = "the run of the checkpoint" if fusion.is_stored_fused else "this line"
                text = f"{split}, as [[optimizer.route]] of {whose} has for {fusion.fused}"
                _refuse(f"train.start.fused {show(fusion.rule.match)}", text, f"{said}", "say the same in both")


def _routes(optimizer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    routes = optimizer.get("route", ())
    yield from (route for route in routes if isinstance(route, Mapping) and route.get("split", "none") != "none")

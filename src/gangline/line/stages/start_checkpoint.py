"""The checkpoint of another run that a training starts from: looked at before anything is queued."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NoReturn

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.fused_names import Fusion, fusions
from gangline.checkpoint.format.index import MODEL
from gangline.checkpoint.format.manifest import MANIFEST
from gangline.line.gangs import launchers
from gangline.line.record.context import RunContext
from gangline.line.record.store import read_record
from gangline.spec.config.grammar import CHECKPOINT
from gangline.spec.config.problems import ConfigProblem, FileError, show
from gangline.spec.identity import is_run_prefix
from gangline.spec.plan import Plan
from gangline.spec.record import Record
from gangline.storage.objects.blobs import get_blob

_KEY = "train.start.checkpoint"


def described_start(ctx: RunContext) -> str:
    """What the run goes on from, for its record; empty: it begins with step 0.

    Raises:
        ConfigError: The run may not read it, it does not exist, has another seed or no step left to train, or the rules
            of fused parameters fit neither it nor what routes say of their rows.
        RefusedCheckpoint: It is damaged, or the project did not sign it.
    """
    start = ctx.line.train.start
    if start.checkpoint is None:
        return ""
    record = _own_run(ctx, start.checkpoint)
    key = launchers.checkpoint_key(ctx.site, ctx.environ, ctx.record.run.project)
    folder = CheckpointFolder.open(ctx.store, start.checkpoint, key)
    step, numbers = folder.manifest.step, folder.state().numbers
    if step >= (last := ctx.line.train.stop_at or ctx.line.train.steps):
        _refuse("train.steps", f"more than the {step} of the checkpoint", f"{last}", "count its steps, too")
    if (seed := numbers.get("seed")) != ctx.line.train.seed:
        works = "write its seed, or the samples that it trained come again"
        _refuse("train.seed", f"{seed}, as the run of the checkpoint has", f"{ctx.line.train.seed}", works)
    names = [name.removeprefix(MODEL) for name in folder.index().names(MODEL)]
    found = fusions(start.fused, names, ())
    _require_rows(ctx, found, record)
    converted = f"; {len(found)} fused parameters are split or joined" if found else ""
    return f"goes on from step {step} of {start.checkpoint}, run {folder.manifest.run}{converted}"


def _refuse(key: str, wanted: str, found: str, works: str) -> NoReturn:
    raise FileError("line.toml", [ConfigProblem(key, wanted, found, works)])


def _own_run(ctx: RunContext, checkpoint: str) -> Record:
    """The run that saved it, of the project's own commits as this one is."""
    wanted, of = "a checkpoint of a run of this project", CHECKPOINT.fullmatch(checkpoint)
    if ctx.record.commit.trust != "own":
        works = "a commit of the repository itself may start from it"
        _refuse(_KEY, "nothing in a fork's line", show(checkpoint), works)
    if of is None or not is_run_prefix(of["run"]) or of["project"] != ctx.record.run.project:
        _refuse(_KEY, wanted, show(checkpoint), f"runs/{ctx.record.run.project}/... works")
    record = read_record(ctx.store, of["run"])
    if record is None or record.commit.trust != "own":
        found = "no run" if record is None else "a run of a fork, whose checkpoints have another key"
        _refuse(_KEY, wanted, f"{show(checkpoint)}, {found}", "gangline list shows the runs")
    if ctx.store.head(f"{checkpoint}/{MANIFEST}") is None:
        works = "gangline artifacts RUN lists its checkpoints; the newest ones of a run are kept"
        _refuse(_KEY, wanted, f"{show(checkpoint)}, which is not in the store", works)
    return ctx.sealer.check(record)


def _require_rows(ctx: RunContext, found: Sequence[Fusion], record: Record) -> None:
    """Where a route says which rows of a fused parameter are whose, the rule says the same.

    Rows of wrong heads have the right shapes: nothing else would notice.
    """
    plan = None if record.plan is None else Plan.from_json(get_blob(ctx.store, record.plan.key))
    theirs = [] if plan is None else list(_routes(plan.optimizer))
    ours = list(_routes(ctx.line.optimizer))
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
    yield from (each for each in routes if isinstance(each, Mapping) and each.get("split", "none") != "none")

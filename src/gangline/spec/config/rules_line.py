"""Rules of `line.toml` beyond the types of its values: one function per table, each yields every problem."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gangline.spec.config import grammar
from gangline.spec.config.data_keys import MOST_ENTRIES, REFERENCE, SCHEME, WANTED, foreign
from gangline.spec.config.infer_table import InferTable
from gangline.spec.config.line import (
    DataTable,
    EnvTable,
    EvaluateTable,
    GateTable,
    Line,
    PlanTable,
    ProjectTable,
    ProveTable,
    PublishTable,
    TriggerTable,
)
from gangline.spec.config.problems import ConfigProblem, FileError, one_of, show
from gangline.spec.config.rules_federated import federated_rules, federated_table_rules
from gangline.spec.config.rules_search import search_line_rules, search_rules
from gangline.spec.config.rules_train import parameter_server_line_rules, train_rules
from gangline.spec.dataset import NAME
from gangline.spec.globs import is_inside
from gangline.spec.program_words import missing_keys
from gangline.spec.strategies import names

Reader = Callable[[str], bytes | None]
"""Bytes of a file of the repository; None: it is not there."""

SLUG = "a name of [a-z][a-z0-9-]{0,19}"
MOST_SEEDS = 99
"""Most seeds of a program, which trains each in a gang of its own."""
INSIDE = "a path inside the repository"
METRICS_ENDINGS = (".json", ".jsonl", ".csv")
_DATASET = "dataset:NAME, dataset:NAME@VERSION or dataset:NAME@ALIAS"


def line_rules(line: Line, reader: Reader | None) -> Iterator[ConfigProblem]:
    """What only the whole line shows."""
    yield from _lock_rules(line.env.lock, reader)
    yield from _store_key_rules(line.data, line.project.name)
    if line.prove.replay_steps > line.train.steps:
        found = f"{line.prove.replay_steps}"
        yield ConfigProblem(
            "prove.replay_steps", f"at most train.steps = {line.train.steps}", found, "replay fewer steps"
        )
    yield from _start_rules(line)
    for index, quality in enumerate(line.gate.quality):
        if line.evaluate.metrics and quality.metric not in line.evaluate.metrics:
            wanted, works = one_of(line.evaluate.metrics), "add it to evaluate.metrics"
            yield ConfigProblem(f"gate.quality[{index}].metric", wanted, show(quality.metric), works)
    yield from search_line_rules(line.search, line.train)
    yield from _dataset_line_rules(line)
    yield from serve_rules(line)
    yield from federated_rules(line)
    yield from parameter_server_line_rules(line)
    if not line.project.distributed:
        yield from _alone_rules(line)
    for key in missing_keys(line.project.command or (), line.model):
        wanted, works = f"a value for {{model.{key}}} of project.command", f"write {key} = 1e-3 in [model]"
        yield ConfigProblem(f"model.{key}", wanted, "none", works)
    if line.project.task is not None and line.publish.files:
        works = "leave it out: a task's checkpoint is published"
        yield ConfigProblem("publish.files", "nothing for a task", show(line.publish.files), works)
    if line.project.command is not None and line.evaluate.every_steps is not None:
        works = "its loop is its own: session.report(...) where it likes; a project.task is evaluated as often as said"
        yield ConfigProblem("evaluate.every_steps", "nothing for a command", show(line.evaluate.every_steps), works)
    if line.project.command is not None and line.evaluate.seeds > MOST_SEEDS:
        yield ConfigProblem(
            "evaluate.seeds", f"at most {MOST_SEEDS} for a command", show(line.evaluate.seeds), "3 learn a band"
        )


def _start_rules(line: Line) -> Iterator[ConfigProblem]:
    """A run that starts from another one's checkpoint has no steps before it, and no other seeds."""
    start = line.train.start
    if start.checkpoint is None:
        if start.fused:
            works = "write train.start.checkpoint with it"
            yield ConfigProblem("train.start.fused", "a checkpoint to open", "none", works)
        return
    if not grammar.CHECKPOINT.fullmatch(start.checkpoint):
        wanted = "the folder of a checkpoint, runs/.../gang/checkpoints/step-00000120"
        works = "gangline artifacts RUN lists those of a run"
        yield ConfigProblem("train.start.checkpoint", wanted, show(start.checkpoint), works)
    if line.project.task is None:
        works = "a program loads what it wants to start from"
        yield ConfigProblem("train.start.checkpoint", "nothing for a command", show(start.checkpoint), works)
    if line.evaluate.seeds > 1:
        works = "evaluate.seeds = 1: other seeds would train from step 0, which is another training"
        yield ConfigProblem("evaluate.seeds", "1 with train.start", show(line.evaluate.seeds), works)
    if line.prove.replay_steps:
        works = "replay_steps = 0: the first steps are those of the other run"
        yield ConfigProblem("prove.replay_steps", "0 with train.start", show(line.prove.replay_steps), works)


def _alone_rules(line: Line) -> Iterator[ConfigProblem]:
    if line.project.task is not None:
        yield ConfigProblem(
            "project.distributed", "true for a task", "false", "ranks = 1 in [train] trains it in one process"
        )
    if line.train.ranks not in ("auto", 1):
        works = "leave one of the two out"
        yield ConfigProblem("train.ranks", "1 with project.distributed = false", show(line.train.ranks), works)


def _project_rules(table: ProjectTable) -> Iterator[ConfigProblem]:
    if not grammar.SLUG.fullmatch(table.name):
        yield ConfigProblem(
            "project.name", SLUG, show(table.name), "use lower-case letters, digits and dashes, at most 20"
        )
    if (table.task is None) == (table.command is None):
        found = "neither" if table.task is None else "both"
        works = 'write task = "module:Class", or command = ["python", "train.py"]'
        yield ConfigProblem("project.task", "exactly one of project.task and project.command", found, works)
    if table.task is not None and not grammar.TASK.fullmatch(table.task):
        yield ConfigProblem(
            "project.task", '"module:Class"', show(table.task), "name a class of a module of the repository"
        )
    if table.command is not None and (not table.command or not table.command[0].strip()):
        yield ConfigProblem(
            "project.command", "a program and its arguments", "an empty one", '["python", "train.py"] works'
        )
    yield from _inside("project.include", map(_below, table.include))
    yield from _inside("project.exclude", table.exclude)
    yield from _inside("project.path", map(_below, table.path))
    yield from _written_rules(table)


def _written_rules(table: ProjectTable) -> Iterator[ConfigProblem]:
    """What a program writes, relative to the folder that it starts in."""
    yield from _inside("project.outputs", table.outputs)
    yield from _inside("project.metrics_of", table.metrics_of)
    yield from _not_of_git("project.outputs", table.outputs)
    if len(table.outputs) > MOST_ENTRIES:
        yield ConfigProblem(
            "project.outputs", f"at most {MOST_ENTRIES} globs", f"{len(table.outputs)}", '"out/**" is many'
        )
    if table.metrics is None:
        return
    if not is_inside(table.metrics) or "*" in table.metrics:
        yield ConfigProblem("project.metrics", "one file inside the folder", show(table.metrics), "metrics.json works")
    if not table.metrics.endswith(METRICS_ENDINGS):
        wanted = f"a file that ends in {', '.join(METRICS_ENDINGS)}"
        yield ConfigProblem(
            "project.metrics", wanted, show(table.metrics), "write JSON, JSON lines or CSV with a header"
        )
    if table.task is not None:
        works = "return it from evaluate(model, batch) of the task"
        yield ConfigProblem(
            "project.metrics", "nothing for a task, which returns its metrics", show(table.metrics), works
        )


def _env_rules(table: EnvTable) -> Iterator[ConfigProblem]:
    if table.lock is not None:
        yield from _inside("env.lock", [table.lock])
    for index, extra in enumerate(table.extras):
        if not grammar.NAME.fullmatch(extra):
            yield ConfigProblem(f"env.extras[{index}]", "the name of an extra", show(extra))
    if table.extras and not (table.lock or "").endswith("uv.lock"):
        yield ConfigProblem("env.extras", "a uv.lock", show(table.lock), "other locks contain the chosen extras")
    if table.python is not None and not grammar.PYTHON.fullmatch(table.python):
        yield ConfigProblem("env.python", "a version of Python", show(table.python), '"3.12" works')
    if table.base is not None and not grammar.IMAGE.fullmatch(table.base):
        yield ConfigProblem("env.base", "an image with @sha256:", show(table.base), "name it as IMAGE@sha256:DIGEST")


def _data_rules(table: DataTable) -> Iterator[ConfigProblem]:
    if table.text and table.shards:
        yield ConfigProblem("data.shards", "one of data.text and data.shards", "both", "leave one out")
    for name, entries in (("text", table.text), ("shards", table.shards)):
        if len(entries) > MOST_ENTRIES:
            yield ConfigProblem(
                f"data.{name}", f"at most {MOST_ENTRIES} entries", f"{len(entries)}", "use globs, or shards"
            )
    for index, pattern in enumerate(table.text):
        yield from _text_rules(f"data.text[{index}]", pattern)
    for index, key in enumerate(table.shards):
        if not key.startswith(SCHEME) and not grammar.STORE_KEY.fullmatch(key):
            wanted, works = "dataset:NAME or a key of the store", "name a data set, or a shard manifest"
            yield ConfigProblem(f"data.shards[{index}]", wanted, show(key), works)
    yield from _dataset_rules(table)
    if table.digest is not None and not grammar.SHA256.fullmatch(table.digest):
        yield ConfigProblem(
            "data.digest", "64 hexadecimal digits", show(table.digest), "copy it from a record: inputs.data"
        )


def _dataset_rules(table: DataTable) -> Iterator[ConfigProblem]:
    """Data sets, their mix, and the order of their samples."""
    references = [
        (f"data.shards[{index}]", shard) for index, shard in enumerate(table.shards) if shard.startswith(SCHEME)
    ]
    if references and len(references) < len(table.shards):
        yield ConfigProblem(
            "data.shards", "data sets, or keys of manifests", "both", "pack or add the rest: gangline data"
        )
    references += [(f"data.mix[{index}].shards", mix_table.shards) for index, mix_table in enumerate(table.mix)]
    names = [match["name"] for _, each in references if (match := REFERENCE.fullmatch(each))]
    for place, reference in references:
        if not REFERENCE.fullmatch(reference):
            yield ConfigProblem(place, _DATASET, show(reference), "dataset:wiki@3f2a91c4 works")
    for name in sorted({each for each in names if names.count(each) > 1}):
        yield ConfigProblem(
            "data.mix" if table.mix else "data.shards", "each data set once", f"{names.count(name)} times {name}",
            "raise its weight, or pack one version of both",
        )  # fmt: skip
    if table.mix and (table.text or table.shards):
        other = "text" if table.text else "shards"
        yield ConfigProblem("data.mix", f"one of data.mix and data.{other}", "both", "leave one out")
    if len(table.mix) > MOST_ENTRIES:
        yield ConfigProblem("data.mix", f"at most {MOST_ENTRIES} data sets", f"{len(table.mix)}", "pack some together")
    given = [name for name, default in (("window", 8), ("parts", 1)) if getattr(table, name) != default]
    if not references and (given or table.order in ("window", "file")):
        key = "order" if table.order in ("window", "file") else given[0]
        yield ConfigProblem(
            f"data.{key}", "data sets in data.shards or data.mix", "none", "gangline data pack makes one of files"
        )


def _plan_rules(table: PlanTable) -> Iterator[ConfigProblem]:
    for name, wanted, value in table.transformer.problems() if table.transformer else ():
        yield ConfigProblem(f"plan.transformer.{name}", wanted, show(value))


def _evaluate_rules(table: EvaluateTable) -> Iterator[ConfigProblem]:
    for index, metric in enumerate(table.metrics):
        if not grammar.NAME.fullmatch(metric):
            yield ConfigProblem(f"evaluate.metrics[{index}]", "the name of a metric", show(metric), "eval_loss is one")


def _gate_rules(table: GateTable) -> Iterator[ConfigProblem]:
    for index, quality in enumerate(table.quality):
        if quality.tolerance_percent is not None and quality.limit is not None:
            key = f"gate.quality[{index}].tolerance_percent"
            yield ConfigProblem(key, "one of limit and tolerance_percent", "both", "keep one")
    metrics = [quality.metric for quality in table.quality]
    for metric in sorted({each for each in metrics if metrics.count(each) > 1}):
        yield ConfigProblem(
            "gate.quality", "one gate a metric", f"{metrics.count(metric)} for {show(metric)}", "keep one"
        )


def _prove_rules(table: ProveTable) -> Iterator[ConfigProblem]:
    works = ("auto", "off", *names(aliases=True))
    if table.plan not in works:
        yield ConfigProblem("prove.plan", one_of(works), show(table.plan))


def _publish_rules(table: PublishTable) -> Iterator[ConfigProblem]:
    if table.model is not None and not grammar.SLUG.fullmatch(table.model):
        yield ConfigProblem("publish.model", SLUG, show(table.model), "leave it out: the project's name")
    yield from _inside("publish.branches", table.branches)
    yield from _inside("publish.files", table.files)
    yield from _not_of_git("publish.files", table.files)
    if table.dataset is None:
        return
    if not NAME.fullmatch(table.dataset):
        yield ConfigProblem("publish.dataset", "a name of [a-z][a-z0-9-]{0,39}", show(table.dataset), "wiki works")
    for name in ("model", "files"):
        if getattr(table, name):
            works = "a run makes a model or a data set: leave one out"
            yield ConfigProblem("publish.dataset", f"nothing with publish.{name}", show(table.dataset), works)


def _trigger_rules(table: TriggerTable) -> Iterator[ConfigProblem]:
    yield from _inside("trigger.branches", table.branches)
    yield from _inside("trigger.paths", table.paths)
    if table.schedule is not None and not grammar.is_cron(table.schedule):
        works = '"0 3 * * *" is each day at three'
        yield ConfigProblem("trigger.schedule", "cron of five fields", show(table.schedule), works)


def _infer_rules(table: InferTable) -> Iterator[ConfigProblem]:
    if table.handler is not None and not grammar.TASK.fullmatch(table.handler):
        yield ConfigProblem("infer.handler", "module:Class", show(table.handler), '"serve:Handler" works')


TABLE_RULES: dict[str, Callable[..., Iterator[ConfigProblem]]] = {
    "project": _project_rules,
    "env": _env_rules,
    "data": _data_rules,
    "train": train_rules,
    "plan": _plan_rules,
    "evaluate": _evaluate_rules,
    "gate": _gate_rules,
    "prove": _prove_rules,
    "publish": _publish_rules,
    "trigger": _trigger_rules,
    "search": search_rules,
    "infer": _infer_rules,
    "federated": federated_table_rules,
}


def _below(path: str) -> str:
    """`path` without the way up to a folder next to the line's: only the repository shows how far that may lead."""
    return re.sub(r"^(\.\.(/|$))+", "", path) or "."


def _inside(key: str, paths: Iterable[str]) -> Iterator[ConfigProblem]:
    for path in paths:
        if not is_inside(path):
            yield ConfigProblem(key, INSIDE, show(path), "write it relative, without ..")


def _not_of_git(key: str, globs: Iterable[str]) -> Iterator[ConfigProblem]:
    for glob in globs:
        if any(map(grammar.is_git_name, glob.split("/"))):
            yield ConfigProblem(key, "files outside of git folders", show(glob), "git's own files are never kept")


def _text_rules(key: str, pattern: str) -> Iterator[ConfigProblem]:
    scheme, colon, rest = pattern.partition(":")
    if not colon:
        if not grammar.STORE_KEY.fullmatch(pattern):
            yield ConfigProblem(
                key, "repo:GLOB, package:GLOB or a key of the store", show(pattern), "repo:src/**/*.py works"
            )
    elif scheme not in ("repo", "package"):
        yield ConfigProblem(key, "repo: or package:", show(pattern), "repo:src/**/*.py works")
    elif not is_inside(rest):
        yield ConfigProblem(
            key, INSIDE if scheme == "repo" else "a path inside the package", show(pattern), "leave .. out"
        )
    elif scheme == "package" and not re.fullmatch(r"[A-Za-z_]\w*/.+", rest):
        yield ConfigProblem(key, "package:NAME/GLOB", show(pattern), "package:gangline/**/*.py works")


def _store_key_rules(table: DataTable, project: str) -> Iterator[ConfigProblem]:
    """What no site lets a line read; which prefixes it may read, the site says when the data are read."""
    keys = [(f"data.text[{index}]", text) for index, text in enumerate(table.text) if ":" not in text]
    shards = [(f"data.shards[{index}]", key) for index, key in enumerate(table.shards) if not key.startswith(SCHEME)]
    for place, key in (*keys, *shards):
        if found := foreign(key, project):
            yield ConfigProblem(place, WANTED, found, "data/NAME works, where the site says nothing else")


def _lock_rules(lock: str | None, reader: Reader | None) -> Iterator[ConfigProblem]:
    if lock is None or reader is None or not is_inside(lock):
        return
    content = reader(lock)
    if content is None:
        yield ConfigProblem("env.lock", "a file of the commit", f"none called {show(lock)}", "commit it")
        return
    from gangline.spec.config.lock import check_lock  # packaging is not cheap to import, and most lines have no lock

    try:
        check_lock(content, file=lock)
    except FileError as error:
        for problem in error.problems:
            yield replace(problem, key="env.lock", found=f"{problem.found} at {error.file}")


def _dataset_line_rules(line: Line) -> Iterator[ConfigProblem]:
    if line.data.parts >= 1 and line.train.global_batch % line.data.parts:
        yield ConfigProblem(
            "data.parts", f"a divisor of train.global_batch = {line.train.global_batch}", f"{line.data.parts}",
            "1 always works",
        )  # fmt: skip
    if line.publish.dataset is None:
        return
    if line.project.task is not None:
        works = "a program writes the files: project.command, with project.outputs"
        yield ConfigProblem("publish.dataset", "nothing for a task", show(line.publish.dataset), works)
    elif not line.project.outputs:
        works = 'outputs = ["out/*.arrow"] in [project]'
        yield ConfigProblem("publish.dataset", "project.outputs that become its shards", "none", works)


PREFIX = "serve."
"""First letters of the metrics that publishing measures."""


def serve_rules(line: Line) -> Iterator[ConfigProblem]:
    """Problems of the smoke of a server, and of its gate."""
    gate, strikes = line.gate.serve, line.publish.smoke == "serve"
    if strikes and line.publish.dataset is not None:
        yield ConfigProblem("publish.smoke", "a model to publish", "publish.dataset", "leave smoke out")
    if strikes and line.project.task is None and line.infer.handler is None:
        works = 'handler = "serve:Handler" in [infer], or smoke = true'
        yield ConfigProblem("publish.smoke", "infer.handler for a command", show(line.publish.smoke), works)
    for index, quality in enumerate(line.gate.quality):
        if quality.metric.startswith(PREFIX):
            yield ConfigProblem(
                f"gate.quality[{index}].metric", "a metric of the evaluation", show(quality.metric),
                "[gate.serve] judges a server: p99_ms, memory_bytes, worse_percent",
            )  # fmt: skip
    if gate is None:
        return
    if not strikes:
        works = 'smoke = "serve" in [publish]'
        yield ConfigProblem("gate.serve", 'publish.smoke = "serve", which measures', show(line.publish.smoke), works)
    limits = {"p99_ms": gate.p99_ms, "memory_bytes": gate.memory_bytes, "worse_percent": gate.worse_percent}
    if all(limit is None for limit in limits.values()):
        yield ConfigProblem("gate.serve", f"one of {', '.join(limits)}", "none", "worse_percent = 15 works")

"""Rules of data sets in `line.toml`: references, mixes, order of samples, workers, and runs that make a version."""

from collections.abc import Iterator

from gangline.spec.config.data_keys import MOST_ENTRIES, REFERENCE, SCHEME
from gangline.spec.config.line import DataTable, Line, PublishTable
from gangline.spec.config.problems import ConfigProblem, show
from gangline.spec.dataset import NAME

_FORM = "dataset:NAME, dataset:NAME@VERSION or dataset:NAME@ALIAS"


def dataset_rules(table: DataTable) -> Iterator[ConfigProblem]:
    """Problems of `[data]` about data sets, its mix, its order and its workers."""
    references = [(f"data.shards[{index}]", each) for index, each in enumerate(table.shards) if each.startswith(SCHEME)]
    if references and len(references) < len(table.shards):
        yield ConfigProblem(
            "data.shards", "data sets, or keys of manifests", "both", "pack or add the rest: gangline data"
        )
    references += [(f"data.mix[{index}].shards", each.shards) for index, each in enumerate(table.mix)]
    names = [match["name"] for _, each in references if (match := REFERENCE.fullmatch(each))]
    for place, reference in references:
        if not REFERENCE.fullmatch(reference):
            yield ConfigProblem(place, _FORM, show(reference), "dataset:wiki@3f2a91c4 works")
    for name in sorted({each for each in names if names.count(each) > 1}):
        yield ConfigProblem(
            "data.mix" if table.mix else "data.shards", "each data set once", f"{names.count(name)} times {name}",
            "raise its weight, or pack one version of both",
        )  # fmt: skip
    yield from _mix_rules(table)
    yield from _order_rules(table, is_ordered=bool(references))


def _mix_rules(table: DataTable) -> Iterator[ConfigProblem]:
    others = [name for name in ("text", "shards") if getattr(table, name)]
    if table.mix and others:
        yield ConfigProblem("data.mix", f"one of data.mix and data.{others[0]}", "both", "leave one out")
    if len(table.mix) > MOST_ENTRIES:
        yield ConfigProblem("data.mix", f"at most {MOST_ENTRIES} data sets", f"{len(table.mix)}", "pack some together")


def _order_rules(table: DataTable, *, is_ordered: bool) -> Iterator[ConfigProblem]:
    given = [name for name, default in (("window", 8), ("parts", 1)) if getattr(table, name) != default]
    if not is_ordered and (given or table.order in ("window", "file")):
        key = "order" if table.order in ("window", "file") else given[0]
        yield ConfigProblem(
            f"data.{key}", "data sets in data.shards or data.mix", "none", "gangline data pack makes one of files"
        )


def dataset_line_rules(line: Line) -> Iterator[ConfigProblem]:
    """Problems of data sets that only the whole line shows."""
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


def publish_dataset_rules(table: PublishTable) -> Iterator[ConfigProblem]:
    """Problems of `publish.dataset` by itself."""
    if table.dataset is None:
        return
    if not NAME.fullmatch(table.dataset):
        yield ConfigProblem("publish.dataset", "a name of [a-z][a-z0-9-]{0,39}", show(table.dataset), "wiki works")
    for name in ("model", "files"):
        if getattr(table, name):
            works = "a run makes a model or a data set: leave one out"
            yield ConfigProblem("publish.dataset", f"nothing with publish.{name}", show(table.dataset), works)

"""Reproducibility of a run, item by item: pinned, not pinned, or unknown. Pure.

Most items are known to the driver; those on packages, modules and files come from the report of the ranks
(`results.rank_environment`), and are unknown without it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gangline.line.request.run_request import CLEAN_TREE
from gangline.line.results.undeclared_reads import (
    NO_REPORT,
    TRACKED,
    has_declared_data,
    invisible_reads,
    undeclared_reads_text,
)
from gangline.line.results.unreported_metrics import form_of
from gangline.spec.devices import other_kinds
from gangline.spec.measurements import Answer
from gangline.spec.program_files import RuntimeReport
from gangline.spec.record import Record
from gangline.spec.run_flags import stage
from gangline.units import format_count

LEFT_OUT = "left_out"
"""Output of the build stage: tracked files that the code layer leaves out."""
_MOST_PATHS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ReproducibilityItem:
    """One thing that the result of a run depends on."""

    name: str
    pinned: Answer
    """no: it differs from the record."""
    by: str
    """What pins it, or why it is not pinned."""
    uncompared: str = ""
    """What no digest or version in the record describes, so that a comparison cannot see whether it changed."""


def reproducibility_items(record: Record, built: Mapping[str, str] | None = None) -> tuple[ReproducibilityItem, ...]:
    """All items of a run that has trained; `built` are the versions that the build stage installed, if it did."""
    return (
        _commit(record),
        ReproducibilityItem(name="line", pinned="yes", by=f"digest {record.inputs.line[:12]}"),
        ReproducibilityItem(name="code", pinned="yes", by=_code(record)),
        *_environment(record, built),
        _modules(record.ran),
        _data(record),
        *_start(record),
        *_network(record.ran),
        *_gpus(record),
        *_merges(record),
        ReproducibilityItem(name="seeds", pinned="yes", by=_seeds(record)),
    )


def lock_of(record: Record) -> str | None:
    """The lock of the run's environment; None if it has none."""
    outputs = stage(record, "build").outputs
    lock = outputs["lock"] if "lock" in outputs else record.inputs.values.get("env.lock")
    return str(lock) if lock else None


def _commit(record: Record) -> ReproducibilityItem:
    if record.commit.patch is None:
        return ReproducibilityItem(name="commit", pinned="yes", by=record.commit.sha[:12])
    return ReproducibilityItem(
        name="commit", pinned="no", by=f"the tree has uncommitted changes; {CLEAN_TREE}, then run again"
    )  # fmt: skip


def _code(record: Record) -> str:
    """The layer, and the tracked files that are not in it."""
    left_out = stage(record, "build").outputs.get(LEFT_OUT) or {"paths": ()}
    layer, paths = f"layer {record.inputs.code[:12]}", left_out["paths"]
    if not paths:
        return layer
    more = ", ..." if len(paths) > _MOST_PATHS else ""
    return f"{layer}; {left_out['text']}: {', '.join(paths[:_MOST_PATHS])}{more}"


def _environment(record: Record, built: Mapping[str, str] | None) -> Iterator[ReproducibilityItem]:
    lock, ran = lock_of(record), record.ran
    if (image := record.inputs.image) is not None:
        yield ReproducibilityItem(name="image", pinned="yes", by=image.rpartition("@")[2][:19])
    elif ran is not None and ran.foreign:
        by = f"code of the commit ran in {', '.join(ran.foreign)}, which is not the environment that gangline gave it"
        yield ReproducibilityItem(name="environment", pinned="unknown", by=f"{by}; {_imported(ran)}")
        return
    elif lock is None:
        yield ReproducibilityItem(
            name="environment", pinned="unknown", by=f"not locked; {_imported(ran)}; env.lock locks it"
        )
        return
    if ran is None:
        yield ReproducibilityItem(name="environment", pinned="unknown", by=NO_REPORT)
    elif built is not None and (other := _others(ran, built)):
        by = f"other versions than those of {lock or 'its build'} were imported: {_package_list(other)}"
        yield ReproducibilityItem(name="environment", pinned="no", by=by)
    elif built is not None and (added := _added(ran, built)):
        by = f"packages were imported that {lock or 'its build'} did not install: {_package_list(added)}"
        yield ReproducibilityItem(name="environment", pinned="unknown", by=by)
    elif built is not None or image is not None:
        yield ReproducibilityItem(name="environment", pinned="yes", by=f"{lock or 'image'}; {_imported(ran)}")
    else:
        yield ReproducibilityItem(
            name="environment", pinned="unknown", by=f"{lock} was not installed for this run; {_imported(ran)}"
        )


def _others(ran: RuntimeReport, built: Mapping[str, str]) -> list[str]:
    """`numpy 2.4.6 for 1.26.4`: packages imported in another version than the installed one."""
    wanted = {_plain(name): version for name, version in built.items()}
    found = ((name, version, wanted.get(_plain(name))) for name, version in ran.packages.items())
    return [f"{name} {version} for {want}" for name, version, want in found if want not in (None, version)]


def _added(ran: RuntimeReport, built: Mapping[str, str]) -> list[str]:
    """`foo 1.0`: packages that came into the environment after it was built, as by `pip install` in a run."""
    installed = {_plain(name) for name in built}
    return [f"{name} {version}" for name, version in ran.packages.items() if _plain(name) not in installed]


def _package_list(packages: Sequence[str]) -> str:
    return ", ".join(packages[:5]) + (f" and {len(packages) - 5} more" if len(packages) > 5 else "")


def _imported(ran: RuntimeReport | None) -> str:
    """`Python 3.12.3, numpy 2.4.6, torch 2.15.0 and 12 other packages`."""
    if ran is None:
        return "no rank reported what it imported"
    first = [name for name in ("torch", "numpy", "jax", "tensorflow", "xgboost") if name in ran.packages]
    names = (first + [name for name in ran.packages if name not in first])[:3]
    more = len(ran.packages) - len(names)
    others = f" and {format_count(more)} other package{'s' if more > 1 else ''}" if more else ""
    return ", ".join([f"Python {ran.python}", *(f"{name} {ran.packages[name]}" for name in names)]) + others


def _modules(ran: RuntimeReport | None) -> ReproducibilityItem:
    if ran is None or not ran.modules:
        by = NO_REPORT if ran is None else "no rank reported which it loaded"
        return ReproducibilityItem(name="modules", pinned="unknown", by=by, uncompared=by)
    if ran.elsewhere:
        first, more = ran.elsewhere[0], len(ran.elsewhere) - 1
        shown = f"{first.name} of {first.file}" + (f" and {more} more" if more else "")
        by = f"neither in the commit nor in the environment: {shown}"
        return ReproducibilityItem(name="modules", pinned="unknown", by=by, uncompared=by)
    counts = ", ".join(f"{number} {name}" for name, number in sorted(ran.modules.items()))
    cut = "" if ran.is_whole else "; incomplete, because ranks ended without their final report"
    return ReproducibilityItem(name="modules", pinned="yes", by=f"of code layer and environment: {counts}{cut}")


def _data(record: Record) -> ReproducibilityItem:
    sets = "".join(f"{dataset}, " for dataset in record.inputs.datasets)
    tracked = stage(record, "build").outputs.get(TRACKED)
    by = f"{sets}digest {record.inputs.data[:12]}" if has_declared_data(record) else "none declared"
    by = f"{by}: {tracked}" if tracked else by
    reads = undeclared_reads_text(record.ran) if record.ran is not None else ""
    invisible = list(invisible_reads(record))
    if unknown := [each for each in (reads, *invisible) if each]:
        uncompared = "; ".join([by, *invisible]) if invisible else ""
        return ReproducibilityItem(name="data", pinned="unknown", by="; ".join([by, *unknown]), uncompared=uncompared)
    return ReproducibilityItem(
        name="data", pinned="yes", by=f"{by}; no read of a file outside commit and environment was seen"
    )


def _merges(record: Record) -> Iterator[ReproducibilityItem]:
    """Workers of a parameter server push when they are ready, and floating-point sums depend on the order."""
    workers = record.inputs.values.get("train.parameter_server.workers")
    if workers is not None:
        by = f"{workers} workers push when they are ready: the order of merges is not repeatable"
        yield ReproducibilityItem(name="order of merges", pinned="unknown", by=by)


def _seeds(record: Record) -> str:
    """The seeds that were given; a program may have others of its own."""
    given = ", ".join(map(str, record.inputs.seeds)) or "train.seed"
    words = record.inputs.values.get("project.command") or ()
    is_taken = form_of(record) != "other" or any("{seed}" in str(word) for word in words)
    return given if is_taken else f"{given} in GANGLINE_SEED; whether the program reads it is not seen"


def _start(record: Record) -> Iterator[ReproducibilityItem]:
    """A checkpoint is its run's, signed by the project; retention deletes it, whatever other runs start from it."""
    start = record.training.started_from if record.training is not None else None
    if start is not None:
        yield ReproducibilityItem(name="start", pinned="yes", by=f"step {start.step} of {start.checkpoint}")


def _network(ran: RuntimeReport | None) -> Iterator[ReproducibilityItem]:
    if ran is not None and ran.hosts:
        more = f" and {len(ran.hosts) - 3} more" if len(ran.hosts) > 3 else ""
        by = f"connected to {', '.join(ran.hosts[:3])}{more}"
        yield ReproducibilityItem(name="network", pinned="unknown", by=by, uncompared=by)


def _gpus(record: Record) -> Iterator[ReproducibilityItem]:
    """Another kind adds in another order, so that bits differ."""
    if record.plan is None or record.plan.device != "cuda":
        return
    planned, found = record.plan.device_name, record.ran.gpus if record.ran is not None else ()
    if not found:
        yield ReproducibilityItem(name="gpus", pinned="unknown", by="no rank reported which GPUs it computed on")
        return
    names = ", ".join(found)
    if len(found) > 1 or other_kinds(planned, found):
        by = f"computed on {names}; planned for {planned or 'GPUs of one kind'}"
        yield ReproducibilityItem(name="gpus", pinned="unknown", by=by)
    else:
        yield ReproducibilityItem(name="gpus", pinned="yes", by=names)


def _plain(name: str) -> str:
    return name.replace("_", "-").replace(".", "-").lower()

"""Weights that would be published, and the metrics that a program measured on them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from gangline.errors import ConfigError
from gangline.line.gangs import launchers
from gangline.line.record.context import RunContext
from gangline.line.request.trust import checkpoint_owner
from gangline.line.results.training_result import TrainingResult
from gangline.registry.program_files import find_program_files
from gangline.registry.publish_rules import WEIGHTS
from gangline.sanitize import clean
from gangline.spec.codec import from_plain, to_plain
from gangline.spec.config.line import Line
from gangline.spec.gang.status import WeightsEvaluation, WeightsFile
from gangline.spec.globs import any_matches
from gangline.spec.measurements import Answer
from gangline.spec.record import Gate, Record
from gangline.spec.run_flags import stage

EVALUATIONS = "evaluations"
"""Output of the train stage: what the program measured on which weights."""
_WEIGHTS_NAME = re.compile(
    r"(?!(training_args|optimizer|scheduler|scaler|rng_state|random_states)\b|(rng|random)_states?_)"
    r"(.*\.(bin|ckpt|gguf|h5|joblib|keras|msgpack|npy|npz|onnx|pb|pkl|pickle|pt|pth|safetensors|tflite|ubj)|[^.]+)"
)
"""Names of files of weights among what is published; where none is one, all of them count."""
_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedWeights:
    """Files of weights that would be published, or a checkpoint."""

    files: dict[str, WeightsFile]
    """Files by name; a checkpoint counts by its folder, with no digest."""
    paths: tuple[str, ...] = ()
    """Paths among the outputs."""

    def are_in(self, evaluation: WeightsEvaluation) -> bool:
        """Whether metrics of `evaluation` were measured on these files, by content."""
        measured = evaluation.weights
        return all(
            name in measured if file == WeightsFile() else any(_are_equal(file, other) for other in measured.values())
            for name, file in self.files.items()
        )

    def are_comparable(self, evaluation: WeightsEvaluation) -> bool:
        """Whether files that `evaluation` lacks are other ones, not the same ones by another digest."""
        pairs = [(own, other) for own in self.files.values() for other in evaluation.weights.values()]
        return bool(pairs) and all(
            own == other == WeightsFile() or (own.sha256 and other.sha256) or (own.blocks and other.blocks)
            for own, other in pairs
        )


def published_weights(ctx: RunContext) -> PublishedWeights | None:
    """Weights of the run that its line publishes; None if it publishes none, or names none that there are."""
    if ctx.line.publish.files:
        key = launchers.checkpoint_key(ctx.site, ctx.environ, checkpoint_owner(ctx.record))
        with suppress(ConfigError):  # the publish stage says which file is missing
            program_files = find_program_files(ctx.store, ctx.record, globs=ctx.line.publish.files, key=key)
            weights = {
                name: file for name, file in program_files.files.items() if _WEIGHTS_NAME.fullmatch(name.lower())
            }
            return PublishedWeights(files=weights or program_files.files, paths=program_files.paths)
        return None
    checkpoint = ctx.output("train", "checkpoint")
    return PublishedWeights(files={str(checkpoint): WeightsFile()}) if checkpoint else None


def read_evaluations(listed: Any) -> tuple[WeightsEvaluation, ...]:
    """Evaluations of the output of a train stage."""
    return tuple(from_plain(WeightsEvaluation, each) for each in listed or ())


def measured_on(weights: PublishedWeights | None, evaluations: Iterable[WeightsEvaluation]) -> WeightsEvaluation | None:
    """All that was measured on these weights, the newest value of each metric; None: nothing was."""
    weights_evaluations = [
        evaluation for evaluation in evaluations if weights is not None and weights.are_in(evaluation)
    ]
    if not weights_evaluations:
        return None
    metrics = {name: value for evaluation in weights_evaluations for name, value in evaluation.metrics.items()}
    return WeightsEvaluation(
        step=weights_evaluations[-1].step, metrics=metrics, weights=weights_evaluations[-1].weights
    )


def measured_alike(wanted: WeightsEvaluation | None, evaluations: Iterable[WeightsEvaluation]) -> dict[str, float]:
    """Metrics that another seed measured on its own files of the same paths."""
    if wanted is None:
        return {}
    return {
        name: value
        for evaluation in evaluations if evaluation.weights.keys() == wanted.weights.keys()
        for name, value in evaluation.metrics.items()
    }  # fmt: skip


def weights_output(
    line: Line, weights: PublishedWeights | None, evaluations: Sequence[WeightsEvaluation], known: Iterable[str]
) -> dict[str, Any]:
    """Which weights each judged metric is of, for the record; empty if no weights are published or judged."""
    if weights is None:
        return {}
    of_training = TrainingResult.METRICS - ({"loss"} if weights.paths else set())  # a checkpoint ends this training
    judged = ({gate.metric for gate in line.gate.quality} & set(known)) - of_training
    if not judged:
        return {}
    own = measured_on(weights, evaluations)
    stated = line.project.metrics_of
    is_stated = bool(stated and weights.paths) and all(any_matches(path, stated) for path in weights.paths)
    rows: dict[str, dict[str, Any]] = {}
    for name in sorted(judged):
        other = next(
            (evaluation for evaluation in reversed(evaluations) if name in evaluation.metrics), None
        )  # the newest report
        if own is not None and name in own.metrics:
            rows[name] = {"on": "published", "step": own.step, "weights": to_plain(own.weights)}
        elif other is not None and weights.are_comparable(other):
            rows[name] = {"on": "other", "step": other.step, "weights": to_plain(other.weights)}
        else:
            rows[name] = (
                {"on": "stated"} if is_stated else {"on": "unknown"} | ({"stated": list(stated)} if stated else {})
            )
    return {"published": to_plain(weights.files), "metrics": rows}


def judge_weights(record: Record) -> Gate | None:
    """Gate on whether the judged metrics are of the published weights; None if no metric or no weights are judged."""
    output = stage(record, "evaluate").outputs.get(WEIGHTS)
    if not output:
        return None
    published = _named({name: from_plain(WeightsFile, each) for name, each in output["published"].items()})
    rows = output["metrics"]
    by_kind = {kind: [name for name, row in rows.items() if row["on"] == kind] for kind in _VERDICTS}
    kind = next(kind for kind in _VERDICTS if by_kind[kind])
    names = ", ".join(by_kind[kind])
    return Gate(
        name=WEIGHTS, verdict=_VERDICTS[kind], reason=_reason(kind, names, published, rows[by_kind[kind][0]]),
        evidence=dict(output),
    )  # fmt: skip


_VERDICTS: dict[str, Answer] = {"other": "no", "unknown": "unknown", "stated": "yes", "published": "yes"}
"""Verdict by what is known of the weights of a metric; the first that holds for one decides."""


def _reason(kind: str, names: str, published: str, row: Mapping[str, Any]) -> str:
    match kind:
        case "other":
            others = _named({name: from_plain(WeightsFile, each) for name, each in row["weights"].items()})
            return (
                f"{names} was measured on {others}, after step {row['step']}, not on {published}, which publish takes"
            )
        case "unknown" if row.get("stated"):
            return (
                f"project.metrics_of says that {names} is of {', '.join(row['stated'])}, and publish takes {published}"
            )
        case "unknown":
            return (
                f"the program does not say on which weights {names} was measured, and publish takes {published}:"
                ' program.report(..., weights="FILE") says it, project.metrics_of for all metrics,'
                " session.report for those of a session's checkpoint"
            )
        case "stated":
            return f"{names} is of {published}, as project.metrics_of says"
    return f"{names} was measured on {published}, after step {row['step']}"


def _named(files: Mapping[str, WeightsFile]) -> str:
    named = [
        clean(PurePosixPath(name).name if file == WeightsFile() and "/" in name else name, limit=80)
        + (f" (sha256 {file.sha256[:8]})" if file.sha256 else "")
        for name, file in list(files.items())[:_SHOWN]
    ]
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    return ", ".join(named) + more


def _are_equal(one: WeightsFile, other: WeightsFile) -> bool:
    return bool(one.sha256 and one.sha256 == other.sha256) or bool(one.blocks and one.blocks == other.blocks)

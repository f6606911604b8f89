"""Rules of a candidate that is started as a server: `publish.smoke = "serve"` and `gate.serve`."""

from collections.abc import Iterator

from gangline.spec.config.line import Line
from gangline.spec.config.problems import ConfigProblem, at_least, show

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
    for name, limit in limits.items():
        yield from at_least(f"gate.serve.{name}", limit, 0, "leave it out for none")
        if limit == 0:
            yield ConfigProblem(f"gate.serve.{name}", "a number above 0", "0", "leave it out for none")

"""Verdicts on what the smoke of a server measured."""

import pytest

from gangline.line.results.serve_gate import MEMORY, P99, judge_serve, serve_metrics
from gangline.spec.config.infer_table import ServeGate


def answer(*, seconds=0.010, base=0.010, memory=100, base_memory=100, load=0.5, failed=0, **more):
    turns = [[seconds] * 5 for _ in range(8)]
    found = {
        "load": load, "cores": 2, "problems": [], "per_second": 90.0,
        "candidate": {"turns": turns, "failed": failed, "memory_bytes": memory},
    }  # fmt: skip
    if base is not None:
        found["base"] = {"turns": [[base] * 5 for _ in range(8)], "failed": 0, "memory_bytes": base_memory}
    return found | more


def judged(found, **limits):
    return judge_serve(ServeGate(**limits), found, serve_metrics(found, "run"))


@pytest.mark.parametrize(
    ("found", "limits", "verdict"),
    [
        (answer(), {}, "yes"),
        (answer(), {"p99_ms": 10.1}, "yes"),
        (answer(), {"p99_ms": 9.9}, "no"),
        (answer(load=2.5), {"p99_ms": 9.9}, "unknown"),
        (answer(load=2.5), {"p99_ms": 10.1}, "yes"),
        (answer(), {"memory_bytes": 99}, "no"),
        (answer(load=9), {"memory_bytes": 99}, "no"),
        (answer(seconds=0.0114), {"worse_percent": 15}, "yes"),
        (answer(seconds=0.0116), {"worse_percent": 15}, "no"),
        (answer(seconds=0.0116, load=9), {"worse_percent": 15}, "no"),
        (answer(memory=116), {"worse_percent": 15}, "no"),
        (answer(base=None), {"worse_percent": 15}, "unknown"),
        (answer(base=None, load=9), {"worse_percent": 15, "p99_ms": 9.9}, "unknown"),
        (answer(base=None), {"worse_percent": 15, "p99_ms": 9.9}, "no"),
        (answer(failed=1), {}, "no"),
        (answer(problems=["it lies"]), {}, "no"),
    ],
)
def test_verdicts(found, limits, verdict):
    assert judged(found, **limits).verdict == verdict


def test_what_the_report_shows():
    gate = judged(answer(), worse_percent=15)
    assert gate.reason == "p99 10 ms (base 10 ± 0, same machine, in turns) · 90 requests/s · 100 B"
    assert gate.evidence["ratio"] == pytest.approx(1.0)


def test_metrics_with_a_base_and_without():
    metrics = serve_metrics(answer(base=0.02), "run-1")
    assert (metrics[P99].base, metrics[P99].base_band.origin, metrics[MEMORY].base) == (20, "run-1", 100)
    assert serve_metrics(answer(base=None), "run-1")[P99].base_band is None
    assert serve_metrics({"problems": ["it lies"]}, "run-1") == {}

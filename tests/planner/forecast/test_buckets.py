"""Buckets of gradients against a link that is simulated bucket by bucket, and against every number of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.cases import RATES, SITE, TRACED, cpu, line

from gangline.planner.forecast.buckets import best_count, exposed_seconds
from gangline.planner.selection.choice import choose_plan
from gangline.spec.config.line import MeshTable
from gangline.spec.plan import Compression

SECONDS = st.floats(1e-3, 1.0)
LATENCY = st.floats(1e-4, 1e-1)


@given(count=st.integers(1, 50), backward=SECONDS, latency=LATENCY, transfer=SECONDS)
def test_exposed_is_what_a_link_is_busy_after_backward(count, backward, latency, transfer):
    free = 0.0
    for bucket in range(1, count + 1):
        free = max(free, backward * bucket / count) + latency + transfer / count
    assert exposed_seconds(count, backward, latency, transfer) == pytest.approx(free - backward)


@given(backward=SECONDS, latency=LATENCY, transfer=SECONDS)
def test_no_number_of_buckets_leaves_less(backward, latency, transfer):
    best = exposed_seconds(best_count(backward, latency, transfer), backward, latency, transfer)
    least = min(exposed_seconds(count, backward, latency, transfer) for count in range(1, 1001))
    assert best <= least * (1 + 1e-9)


def buckets(*, rates=RATES, **train):
    return choose_plan(line(**train), SITE, cpu(2), TRACED, rates=rates).forecast.buckets


def test_plan_reports_its_buckets_with_what_they_leave():
    """8 MB in one bucket: 100 us and 1 ns a byte, after a backward pass of some milliseconds."""
    found = buckets(strategy="ddp")
    assert (found.count, found.is_given, found.latency_seconds) == (1, False, pytest.approx(1e-4, rel=0.1))
    assert found.exposed_seconds == pytest.approx(8e-3, rel=0.1)
    assert found.best_count > 1
    assert found.best_exposed_seconds < found.exposed_seconds
    given = buckets(strategy="ddp", mesh=MeshTable(bucket_bytes=1_000_000))
    assert (given.count, given.is_given) == (8, True)
    assert given.exposed_seconds < found.exposed_seconds


def test_what_was_not_measured_is_not_known_and_shards_have_no_buckets():
    squeezed = buckets(strategy="ddp", compression=Compression(kind="bf16"))
    assert (squeezed.count, squeezed.exposed_seconds, squeezed.best_count) == (1, None, None)
    assert buckets(strategy="fsdp") is None

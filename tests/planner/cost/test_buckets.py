"""Buckets of gradients against a link that is simulated bucket by bucket, and against every number of them."""

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.cases import RATES, SITE, TRACED, cpu, gpus, line
from tests.planner.formula.reference import EIGHT
from tests.planner.transformers import EIGHT as TRANSFORMER
from tests.planner.transformers import H100, transformer

from gangline.planner.choice import choose_plan
from gangline.planner.cost.averaging import best_count, exposed_seconds
from gangline.planner.formula.inputs import formula_profile
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


ALPHA = replace(H100, gpu={"h100": replace(H100.gpu["h100"], link_latency_seconds=5e-6, network_latency_seconds=20e-6)})
SHAPE = formula_profile(replace(EIGHT, layers=2))


def of_gpus(profile, *, site=ALPHA, bucket_bytes="auto", **train):
    mesh = MeshTable(micro_batch=1, bucket_bytes=bucket_bytes)
    asked = line(batch=256, strategy="ddp", mesh=mesh, **train)
    return choose_plan(asked, site, gpus(8, 4, name="h100"), profile).forecast


@pytest.mark.parametrize("source", ["formula", "traced"])
def test_buckets_follow_from_a_given_latency(source):
    """Between 32 ranks of four servers: 62 messages of 20 us round the ring, all bytes at 300 GB/s."""
    profile = SHAPE if source == "formula" else transformer(sequence=4096, **TRANSFORMER | {"layers": 2})
    forecast = of_gpus(profile)
    found, terms = forecast.buckets, {each.part: each.seconds for each in forecast.terms}
    whole = 4 * profile.parameters
    assert found.count == ceil(whole / (25 * 2**20))
    assert (found.latency_origin, found.latency_seconds) == ("given", pytest.approx(62 * 20e-6, rel=1e-4))
    transfer = 2 * 31 / 32 * whole / 300e9
    assert terms["communication"] == pytest.approx(found.count * 62 * 20e-6 + transfer)
    backward = 2 / 3 * terms["compute"] / 8
    assert found.exposed_seconds == pytest.approx(
        exposed_seconds(found.count, backward, 62 * 20e-6, transfer), rel=1e-3
    )
    assert found.best_exposed_seconds <= found.exposed_seconds
    given = of_gpus(profile, bucket_bytes=10**9).buckets
    assert (given.count, given.size_bytes, given.is_given) == (ceil(whole / 1e9), 1e9, True)


@pytest.mark.parametrize("source", ["formula", "traced"])
def test_without_a_latency_or_of_compressed_gradients_only_their_number_is_known(source):
    profile = SHAPE if source == "formula" else transformer(sequence=4096, **TRANSFORMER | {"layers": 2})
    for forecast in (of_gpus(profile, site=H100), of_gpus(profile, compression=Compression(kind="bf16"))):
        assert (forecast.buckets.exposed_seconds, forecast.buckets.best_count) == (None, None)

"""What squeezed gradients send and what squeezing computes, against the compressors themselves."""

from dataclasses import replace

import pytest
import torch
from tests.planner.cases import SITE, TRACED, cpu, line, step_load_of
from tests.planner.cost.test_step_time import RATES, forecast, terms

from gangline.planner.choice import choose_plan
from gangline.planner.cost.averaging import messages
from gangline.planner.cost.traffic import num_buckets, unknown_traffic
from gangline.planner.layouts.layout import layout_of
from gangline.spec.plan import Compression
from gangline.spec.profile import ParameterShape
from gangline.train.account.clock import WaitMeter
from gangline.train.parallel.compress.bucket import Bucket, Piece
from gangline.train.parallel.compress.factory import make_compressor

SIZES = [(256, 64), (64, 256), (64,), (5, 7), (300, 64), (3, 3, 16)]
SHAPES = [ParameterShape(rows=size[0], columns=torch.Size(size).numel() // size[0], count=1) for size in SIZES]
ENTRIES = sum(torch.Size(size).numel() for size in SIZES)
RANKS = 3


class Counted:
    """A wire that takes what it is given for what came, and counts it: bytes of the whole, by kind."""

    size, rank, group = RANKS, 0, None

    def __init__(self):
        self.waits, self.sent = WaitMeter(), []

    def mean(self, tensor):
        self.sent.append(("all_reduce", tensor.nbytes))

    def gather(self, tensor):
        self.sent.append(("all_gather", RANKS * tensor.nbytes))
        return torch.stack([tensor] * RANKS)


def bucket():
    pieces = [Piece(str(number), torch.randn(size)) for number, size in enumerate(SIZES)]
    flat = torch.cat([each.grad.flatten() for each in pieces])
    parts = torch.split(flat, [each.grad.numel() for each in pieces])
    return Bucket(flat, [Piece(each.name, part.view_as(each.grad)) for each, part in zip(pieces, parts, strict=True)])


@pytest.mark.parametrize(
    "compression",
    [
        Compression(),
        Compression(kind="powersgd", rank=2),
        Compression(kind="powersgd", rank=40),
        Compression(kind="topk", ratio=0.01),
        Compression(kind="topk", ratio=0.3),
    ],
    ids=str,
)
def test_what_is_sent_is_reported_to_the_byte(compression):
    wire = Counted()
    compressor = make_compressor(compression, wire, seed=1)
    compressor.average(bucket()).wait()
    reported = messages(ENTRIES, SHAPES, compression, ranks=RANKS)
    assert reported == wire.sent


@pytest.mark.parametrize("kind", ["powersgd", "topk"])
def test_a_step_has_a_time_where_shapes_are_known(kind):
    compression = Compression(kind=kind)
    shaped = replace(TRACED, tensors=4, shapes=(ParameterShape(rows=1000, columns=500, count=4),))
    found, plain = forecast(profile=shaped, compression=compression), forecast(profile=shaped)
    assert found.missing == ""
    assert found.wire_bytes < 0.1 * plain.wire_bytes
    assert terms(found)["communication"] < terms(plain)["communication"]
    assert terms(found)["compute"] > terms(plain)["compute"]
    load = step_load_of(micro_batch=8, micro_batches=1, precision="fp32", compression=compression)
    assert "shapes, which are not known" in unknown_traffic(TRACED, layout_of("ddp", 2), load)


def test_more_of_top_k_is_more_of_everything():
    shaped = replace(TRACED, tensors=4, shapes=(ParameterShape(rows=1000, columns=500, count=4),))
    little, much = (forecast(profile=shaped, compression=Compression(kind="topk", ratio=each)) for each in (0.01, 0.1))
    assert much.wire_bytes == pytest.approx(10 * little.wire_bytes, rel=1e-3)
    assert terms(much)["compute"] > terms(little)["compute"]


def test_squeezed_gradients_travel_in_as_many_messages():
    large = replace(TRACED, parameters=20_000_000)
    load = step_load_of(micro_batch=8, micro_batches=1, precision="fp32")
    assert [num_buckets(each, layout_of("ddp", 2), load) for each in (TRACED, large)] == [1, 4]
    assert num_buckets(large, layout_of("ddp", 2), replace(load, bucket_bytes=8_000_000)) == 10
    asked = line(strategy="ddp", compression=Compression(kind="bf16"))
    assert choose_plan(asked, SITE, cpu(2), large, rates=RATES).forecast.step_seconds > 0

"""The JSON that gangline writes for itself: byte-stable, and strict when read."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import IntegrityError
from gangline.spec.codec import canonical, canonical_of_set_fields, digest, from_json
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Candidate, CheckpointPolicy, Job, Plan, ProgramSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    name: str
    kind: Literal["a", "b"] = "a"
    size: int | None = None
    share: float = 0.5
    flag: bool = False
    pair: tuple[int, str] | None = None
    many: tuple[float, ...] = ()
    table: dict[str, tuple[int, ...]] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)


samples = st.builds(
    Sample,
    name=st.text(),
    kind=st.sampled_from(["a", "b"]),
    size=st.none() | st.integers(),
    share=st.floats(allow_nan=False, allow_infinity=False),
    flag=st.booleans(),
    pair=st.none() | st.tuples(st.integers(), st.text()),
    many=st.lists(st.floats(allow_nan=False, allow_infinity=False)).map(tuple),
    table=st.dictionaries(st.text(), st.lists(st.integers()).map(tuple)),
)


@given(samples)
def test_what_is_written_reads_back_equal(sample):
    assert from_json(Sample, canonical(sample)) == sample


@given(samples)
def test_equal_values_have_equal_bytes_whatever_the_order_of_keys(sample):
    shuffled = dict(reversed(json.loads(canonical(sample)).items()))
    assert canonical(from_json(Sample, json.dumps(shuffled))) == canonical(sample)
    assert digest(shuffled) == digest(sample)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "wanted JSON"),
        ("[]", "wanted Sample"),
        ("{}", "'name'] are missing"),
        ('{"name": 3}', r"Sample.name: wanted str, found 3"),
        ('{"name": "x", "nmae": 1}', r"unknown fields \['nmae'\]"),
        ('{"name": "x", "kind": "c"}', "Sample.kind"),
        ('{"name": "x", "size": true}', "Sample.size"),
        ('{"name": "x", "share": "1"}', "Sample.share: wanted float"),
        ('{"name": "x", "flag": 1}', "Sample.flag: wanted bool"),
        ('{"name": "x", "pair": [1]}', "Sample.pair"),
        ('{"name": "x", "many": [1, "2"]}', r"Sample.many\[1\]"),
        ('{"name": "x", "table": {"k": 1}}', r"Sample.table.k"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(text, message):
    with pytest.raises(IntegrityError, match=message):
        from_json(Sample, text)


def test_numbers_that_are_not_finite_are_never_written():
    with pytest.raises(ValueError, match="Out of range float"):
        canonical({"loss": float("nan")})


def test_plan_keeps_every_field_and_counts_its_micro_batches():
    plan = Plan(
        run="bytegpt-9f31c2a0-k7q2mx",
        project="bytegpt",
        name="hsdp-2x2",
        role="evaluate",
        run_prefix="runs/bytegpt/x/y",
        program=ProgramSpec(command=("python", "train.py")),
        strategy="hsdp",
        mesh=Mesh(dp_replicate=2, dp_shard=2, tp=2),
        steps=10,
        global_batch=48,
        micro_batch=3,
        checkpoint=CheckpointPolicy(every=5),
        jobs=(Job(seed=2), Job(seed=1, train=False, checkpoint="c")),
        candidates=(Candidate(name="ddp-8", strategy="ddp", mesh=Mesh(dp_replicate=8), verdict="lost", reason="no"),),
    )
    assert Plan.from_json(plan.to_json()) == plan
    assert (plan.world_size, plan.accumulation) == (8, 4)
    assert plan.digest == digest(plan)


def test_newer_document_is_refused_by_its_version_before_its_fields():
    with pytest.raises(IntegrityError, match=r"Plan\.schema: wanted at most 1, found 2; read it with a newer gangline"):
        from_json(Plan, '{"schema": 2, "unheard_of": 1}')


@dataclass(frozen=True, kw_only=True)
class Before:
    seconds: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Later(Before):
    added: Before | None = None
    more: dict[str, int] = field(default_factory=dict)


def test_what_is_said_beyond_the_defaults_outlives_new_fields_and_being_read_back():
    old = canonical_of_set_fields(Before(seconds=0, names=("a",)))
    assert old == canonical_of_set_fields(Later(seconds=0.0, names=("a",)))
    assert old != canonical_of_set_fields(Later(seconds=0.0, names=("a",), more={"b": 0}))
    assert canonical_of_set_fields(Later(seconds=1, added=Before(seconds=2))) == b'{"added":{"seconds":2},"seconds":1}'


@pytest.mark.parametrize("number", [0.5, 1e300, -(2**60), 3.0, 3, -0.0])
def test_a_number_is_the_same_before_and_after_it_was_written(number):
    said = Before(seconds=number)
    assert canonical_of_set_fields(said) == canonical_of_set_fields(from_json(Before, canonical(said)))

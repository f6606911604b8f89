"""Whose results a run may take: one that may be published takes none that others' leftovers may have changed."""

from dataclasses import replace

import pytest
from tests.report.records import passed

from gangline.line.record.earlier_runs import may_take

PUBLISHED = replace(passed(), commit=replace(passed().commit, protected=True, patch=None, trust="own"))
BRANCH = replace(PUBLISHED, commit=replace(PUBLISHED.commit, protected=False))
EXPERIMENT = replace(PUBLISHED, inputs=replace(PUBLISHED.inputs, overrides=("train.seed=2",)))
DIRTY = replace(PUBLISHED, commit=replace(PUBLISHED.commit, patch="blobs/sha256/00"))


def on(record, target):
    return replace(record, run=replace(record.run, target=target))


@pytest.mark.parametrize("other", [BRANCH, EXPERIMENT, DIRTY], ids=["branch", "experiment", "dirty"])
def test_a_run_that_may_be_published_takes_of_others_only_what_pods_computed(other):
    published = on(PUBLISHED, "local")
    assert may_take(published, published)
    assert not may_take(published, on(other, "local"))
    assert may_take(published, on(other, "kubernetes"))


@pytest.mark.parametrize("taker", [BRANCH, EXPERIMENT, DIRTY], ids=["branch", "experiment", "dirty"])
def test_a_run_that_is_never_published_takes_what_it_finds(taker):
    for other in (PUBLISHED, BRANCH, EXPERIMENT, DIRTY):
        assert may_take(on(taker, "local"), on(other, "local"))

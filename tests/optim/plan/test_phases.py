"""Bytes and seconds of a plan by phase, and what each rank has to do."""

import pytest

from gangline.optim.plan.build import build_plan
from gangline.optim.plan.costs import MuonSpec
from gangline.optim.plan.explain import MOST_RANKS, explain, rank_table
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.phases import phases, rank_shares, report_of
from gangline.optim.plan.simulate import simulate

ALIKE = [LogicalMatrix(fqn=f"layers.{at}.w", shape=(1000, 500)) for at in range(8)]
BYTES = 8 * 1000 * 500 * 4


def sent(plan, *, averaged):
    return {each.name: each.sent_bytes for each in phases(plan, simulate(plan), averaged=averaged)}


def test_copies_send_gradients_once_to_owners_twice_to_all():
    plan = build_plan(ALIKE, MuonSpec(), ranks=4)
    assert sent(plan, averaged=True) == {"gradients": 2 * 0.75 * BYTES, "compute": 0, "updates": 0.75 * BYTES}
    assert sent(plan, averaged=False)["gradients"] == 0.75 * BYTES


def test_hosts_send_all_but_what_they_assemble_themselves():
    """Each of 4 has a quarter, of which three quarters are assembled elsewhere."""
    plan = build_plan(ALIKE, MuonSpec(), hosts=4)
    assert sent(plan, averaged=True) == {"gather": BYTES / 4 * 0.75, "compute": 0, "scatter": BYTES / 4 * 0.75}


def test_owners_of_parts_send_parts():
    plan = build_plan(ALIKE, MuonSpec(), ranks=2, hosts=4)
    found = sent(plan, averaged=True)
    assert found["updates"] == BYTES / 4 / 2
    assert found["gather"] == found["scatter"] == BYTES / 2 / 4 * 0.75


def test_seconds_are_those_of_the_prediction():
    plan = build_plan(ALIKE, MuonSpec(), ranks=2, hosts=2)
    times = simulate(plan)
    found = {each.name: each.seconds for each in phases(plan, times, averaged=False)}
    assert found["gather"] + found["scatter"] == pytest.approx(times.exchange_seconds)
    assert (found["gradients"], found["updates"]) == (times.sync_seconds, times.publish_seconds)
    assert found["compute"] == times.compute_seconds


@pytest.mark.parametrize("options", [PlanOptions(), PlanOptions(team="auto")])
def test_shares_of_ranks_are_the_loads_of_the_plan(options):
    plan = build_plan([*ALIKE, LogicalMatrix(fqn="large", shape=(8000, 8000))], MuonSpec(), ranks=4, options=options)
    assert {each.owner: pytest.approx(each.seconds) for each in rank_shares(plan)} == dict(enumerate(plan.loads))
    assert any(each.team for each in plan.matrices) == (options.team == "auto")


def test_hosts_of_all_owners_have_every_matrix_once():
    shares = rank_shares(build_plan(ALIKE, MuonSpec(), ranks=2, hosts=2))
    assert sum(each.matrices for each in shares) == len(ALIKE)
    assert sum(each.matrix_bytes for each in shares) == BYTES
    assert len({(each.owner, each.host) for each in shares}) == 4


def test_a_table_of_many_ranks_counts_those_that_it_leaves_out():
    lines = rank_table(build_plan(ALIKE, MuonSpec(), ranks=16))
    assert len(lines) == 1 + MOST_RANKS + 1
    assert lines[-1].startswith("and 8 ranks with 0.00 ms to 0.00 ms")


def test_rates_of_exchanges_are_said_to_be_assumed():
    text = explain(build_plan(ALIKE, MuonSpec(), ranks=2, hosts=2))
    assert (
        "rates    assumed, not measured: 45 GB/s among copies (one network card), 300 GB/s among hosts (NVLink)" in text
    )
    assert "rates" not in explain(build_plan(ALIKE, MuonSpec()))


def test_a_report_has_what_the_page_says():
    plan = build_plan(ALIKE, MuonSpec(), ranks=2)
    found = report_of(plan, simulate(plan), averaged=True)
    assert (found.plan_hash, found.ratio, found.owners, found.hosts) == (plan.plan_hash, plan.ratio, 2, 1)
    assert [each.name for each in found.phases] == ["gradients", "compute", "updates"]

"""A drill is held, broken with its reason, or not struck; what it cost is charged to it."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.line.drill.test_history import KILL, KILLED
from tests.report.records import passed

from gangline.errors import ConfigError
from gangline.line.drill.catalogue import DRILLS, choose
from gangline.line.drill.history import Aftermath, Strike, aftermath
from gangline.line.drill.judge import Held, charge, judge, not_struck, with_drill
from gangline.spec.record import LEDGER_CAUSES, Ledger
from gangline.spec.site import DrillTable, LaunchTable, Site, StoreTable

KIND = DRILLS["kill-rank"]
FREEZE = DRILLS["freeze-rank"]
STOP = Strike(rank=1, step=4, generation=0, mono=4.5, seconds=5.0)


def test_a_kill_that_came_back_within_an_interval_held():
    drill = judge(KIND, KILL, aftermath(KILLED, KILL), (), interval=2, seed=7)
    assert (drill.result, drill.reason, drill.lost_steps) == ("held", "", 2)
    assert drill.arguments == {"rank": 1, "step": 4, "seed": 7}


@pytest.mark.parametrize(
    ("kind", "done", "change", "interval", "invariants", "reason"),
    [
        (KIND, KILL, {"lost_steps": 3, "durable": 4}, 2, (), "lost 3 steps, promised at most 2"),
        (KIND, KILL, {"lost_steps": 3, "durable": 1, "saves_failed": True}, 2, (), "lost 3 steps, promised at most 2"),
        (KIND, KILL, {"recover_seconds": None}, 2, (), "no new step came"),
        (KIND, KILL, {"detect_seconds": None}, 2, (), "no keeper noticed"),
        (KIND, KILL, {"breaks": ("step 3 followed step 1",)}, 2, (), "step 3 followed step 1"),
        (KIND, KILL, {}, 2, (Held(name="I4", state="broken", text="process 7"),), "I4: process 7"),
        (FREEZE, STOP, {}, 2, (), "a stop of 5.0 s cost a restart"),
    ],
)
def test_a_broken_promise_is_named(kind, done, change, interval, invariants, reason):
    after = replace(aftermath(KILLED, KILL), **change)
    drill = judge(kind, done, after, invariants, interval=interval, seed=1)
    assert (drill.result, drill.reason) == ("broken", reason)


def test_a_save_that_was_under_way_excuses_the_interval_before_it():
    after = replace(aftermath(KILLED, KILL), lost_steps=3, durable=1)
    assert judge(KIND, KILL, after, (), interval=2, seed=1).result == "held"


def test_a_short_stop_that_cost_nothing_held_and_a_pending_invariant_breaks_nothing():
    after = Aftermath(recover_seconds=5.3, lost_steps=0, lost_seconds=5.3)
    pending = (Held(name="I4", state="pending"), Held(name="I3", state="-"))
    assert judge(FREEZE, STOP, after, pending, interval=30, seed=1).result == "held"


def test_a_drill_stands_in_the_record_once_and_replaces_its_mark():
    record = passed()
    mark = not_struck(KIND, "under way", seed=7)
    marked = with_drill(record, mark)
    assert with_drill(marked, mark) is marked
    drill = judge(KIND, KILL, aftermath(KILLED, KILL), (), interval=2, seed=7)
    assert with_drill(with_drill(record, drill), drill).drills == (drill,)


def test_the_lost_time_of_all_ranks_is_charged_to_the_drill():
    record = passed()
    rows = {**record.ledger.seconds, "restart": 4.0, "redone": 1.0}
    record = replace(record, ledger=replace(record.ledger, seconds=rows))
    drill = replace(judge(KIND, KILL, aftermath(KILLED, KILL), (), interval=2, seed=7), lost_seconds=2.25)
    after = with_drill(record, drill).ledger.seconds
    assert (after["drill"], after["restart"], after["redone"]) == (4.5, 0.0, 0.5)


@given(
    st.dictionaries(st.sampled_from(LEDGER_CAUSES), st.floats(min_value=0, max_value=1e6), max_size=20),
    st.floats(min_value=0, max_value=1e7),
)
def test_charging_a_drill_keeps_the_sum_and_never_owes(rows, seconds):
    ledger = Ledger(resource="cpu", allocated_seconds=sum(rows.values()), seconds=rows)
    after = charge(ledger, seconds)
    assert math.isclose(sum(after.seconds.values()), sum(rows.values()), rel_tol=1e-9, abs_tol=1e-6)
    assert all(value >= 0 for value in after.seconds.values())
    assert after.seconds.get("compute", 0.0) == rows.get("compute", 0.0)


@pytest.mark.parametrize(
    ("name", "site", "said"),
    [
        ("kill-store", Site(), "needs a store server"),
        ("fill-disk", Site(), "file system of its own"),
        ("no-such", Site(), "here works: kill-rank, freeze-rank"),
        ("kill-rank", Site(launch=LaunchTable(target="kubernetes")), "not kubernetes"),
        ("kill-rank", Site(store=StoreTable(url="s3://b/p", endpoint="http://h")), r'drill\.allow = \["kill-rank"\]'),
    ],
)
def test_a_drill_that_may_not_run_is_refused_with_what_works(name, site, said):
    with pytest.raises(ConfigError, match=said):
        choose(name, site)


def test_a_site_with_a_shared_store_may_allow_a_drill_by_name():
    site = Site(store=StoreTable(url="s3://b/p", endpoint="http://h"), drill=DrillTable(allow=("freeze-rank",)))
    assert choose("freeze-rank", site) is FREEZE

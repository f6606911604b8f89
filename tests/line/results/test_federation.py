"""What a record says of a federation, where it is shown, and how its privacy is judged."""

import json
from dataclasses import replace

import pytest
from tests.line.records import record as a_record

from gangline.cli.view.run_view import PlainView
from gangline.launch.protocol import GangEvent
from gangline.line.results.training_summary import read_federation
from gangline.line.stages.gate import judge_privacy
from gangline.metrics.from_events import RankSeries
from gangline.metrics.series_store import SeriesStore
from gangline.registry.model_folder import _federation as on_card
from gangline.report.progress import StageProgress
from gangline.report.training_facts import federation_words, training_rows
from gangline.signing.provenance import _model_predicate
from gangline.spec.codec import canonical
from gangline.spec.federated import FederatedTable, FederationPlan, FederationResult
from gangline.spec.measurements import Training

ROSTER = tuple(f"m{number}" for number in range(7))
PLAN = FederationPlan(
    table=FederatedTable(local_steps=5, quorum=5, epsilon=4.0, clip_grad=1.0, secure_sum=True, clip_norm=1.0),
    roster=ROSTER, simulated=False,
)  # fmt: skip


def event(kind, number, answered, *, generation=0, epsilon=None, **refused):
    plain = {
        "event": kind, "rank": 0, "generation": generation, "step": 5 * number if kind == "round" else None,
        "round": number, "rounds": 8, "answered": answered, "members": 7, "refused": refused, "bytes_up": 100,
        "bytes_down": 200, "epsilon": epsilon, "loss": 1.0 / number, "seconds": 2.0, "engine": "nvflare 2.9.0",
        "accountant": None if epsilon is None else "opacus 1.6.0",
    }  # fmt: skip
    return json.dumps(plain).encode() + b"\n"


def lines(*events):
    return b"".join([b"not an event\n", *events, b'{"event": "done"}\n'])


def test_rounds_are_counted_once_and_what_was_refused_each_time():
    first = lines(event("round", 1, 7), event("round_lost", 2, 3, budget=1), event("round", 2, 6, not_finite=1))
    again = [event("round", 2, 5, generation=1, not_finite=1, epsilon=1.5)]
    rest = [event("round", number, 7, generation=1, epsilon=3.9) for number in range(3, 9)]
    found = read_federation([first, lines(*again, *rest)], PLAN, rounds=8)
    assert (found.roster, found.rounds, found.merged, found.lost, found.repeated) == (7, 8, 8, 1, 1)
    assert found.refused == {"budget": 1, "not_finite": 2}
    assert found.answered == (6.0, 7.0, 7.0, 7.0)
    assert (found.bytes_up, found.bytes_down) == (1000, 2000)
    assert (found.engine, found.secure_sum, found.epsilon, found.spent) == ("nvflare 2.9.0", True, 4.0, 3.9)
    assert found.accountant == "opacus 1.6.0"


def test_rounds_whose_events_a_lost_pod_took_along_were_merged():
    rest = [event("round", number, 7, generation=1) for number in range(4, 9)]
    assert read_federation([lines(*rest)], PLAN, rounds=8).merged == 8
    assert read_federation([lines(*rest, event("round", 9**9, 7))], PLAN, rounds=8).merged == 8


def test_wild_events_of_a_rank_say_little_and_break_nothing():
    wild = {
        "event": "round",
        "round": "x" * 10**5,
        "answered": -1,
        "refused": {"y" * 10**5: 10, "z": "many"},
        "epsilon": "lots",
        "engine": ["x"],
        "accountant": "y",
    }
    many = [json.dumps({**wild, "refused": {f"reason-{number}": 1}}).encode() + b"\n" for number in range(1000)]
    found = read_federation([json.dumps(wild).encode() + b"\n" + b"".join(many)], PLAN, rounds=8)
    assert (found.spent, found.accountant, found.engine) == (None, None, "unknown")
    assert len(canonical(found)) < 4096


def test_nothing_of_it_names_a_member():
    found = read_federation([lines(event("round", 1, 7))], PLAN, rounds=8)
    assert not any(name in canonical(found).decode() for name in ROSTER)


FOUND = FederationResult(
    engine="nvflare 2.9.0", roster=7, answered=(6.0, 7.0), rounds=8, merged=8, lost=1, refused={"not_finite": 2},
    secure_sum=True, epsilon=4.0, delta=1e-5, spent=3.9, accountant="opacus 1.6.0",
    bytes_up=10**6, bytes_down=2 * 10**6,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "verdict"), [({}, "yes"), ({"spent": 4.1}, "no"), ({"spent": None}, "unknown"), ({"spent": 4.0}, "yes")]
)
def test_the_gate_compares_what_was_spent_with_what_was_asked(changes, verdict):
    gate = judge_privacy(replace(FOUND, **changes))
    assert (gate.name, gate.verdict) == ("privacy", verdict)


def test_what_is_unknown_under_a_secure_sum_is_said_aloud():
    """The coordinator sees no member's account: what it asked for is no measurement of what was spent."""
    events = lines(*(event("round", number, 7) for number in range(1, 9)))
    found = read_federation([events], PLAN, rounds=8)
    gate = judge_privacy(found)
    assert (found.spent, found.accountant, gate.verdict) == (None, None, "unknown")
    assert "spent epsilon UNKNOWN (a secure sum shows no member's account" in gate.reason
    assert "spent epsilon UNKNOWN" in federation_words(found)
    internal = _model_predicate(replace(a_record(), federated=found), "m", 1, "c")["buildDefinition"]
    assert internal["internalParameters"]["federation"]["spent"] == "unknown"


def test_without_privacy_there_is_no_gate_on_it():
    assert judge_privacy(None) is None
    assert judge_privacy(replace(FOUND, epsilon=None, delta=None, spent=None)) is None


def test_reports_card_and_provenance_say_where_the_data_stayed():
    record = replace(a_record(), federated=FOUND, training=Training())
    words = federation_words(FOUND)
    for part in (
        "7 members over nvflare 2.9.0",
        "8 of 8 rounds",
        "1 lost round",
        "not finite 2",
        "epsilon 3.90 of 4",
        "by opacus 1.6.0",
    ):
        assert part in words
    assert ("federation", words) in training_rows(record)
    assert on_card(record).startswith("Data stayed with their members: 7 members")
    internal = _model_predicate(record, "m", 1, "c")["buildDefinition"]["internalParameters"]
    assert internal["federation"]["data"] == "stayed with 7 members"
    assert internal["federation"]["epsilon"] == "4.0"
    assert "simulated" in on_card(replace(record, federated=replace(FOUND, engine="simulated")))
    assert on_card(a_record()) == ""
    assert "federation" not in _model_predicate(a_record(), "m", 1, "c")["buildDefinition"]["internalParameters"]


def test_the_live_sentence_counts_rounds_and_answers():
    progress = StageProgress("train", plan="fedavg-7", steps=40)
    for number in (1, 2, 3):
        data = json.loads(event("round", number, 6))
        progress.see(GangEvent(kind="progress", text="round", data=data))
    assert progress.sentence() == "fedavg-7 round 3/8 loss 0.3333 · 6 of 7 answered · ETA 10 s"


def members(accepted, *missing):
    data = {"event": "members", "rank": 0, "accepted": accepted, "members": 7, "quorum": 5, "missing": list(missing)}
    return GangEvent(kind="progress", text="members", data=data)


LEIPZIG = "leipzig: approval of offer 7d30e1c2 is pending"
WAITS = "waiting for members: 4 of 7 have accepted, the quorum is 5"


def test_a_run_that_waits_for_members_says_who_is_there_who_is_missing_and_the_quorum():
    progress = StageProgress("train", plan="fedavg-7", steps=40)
    progress.see(members(4, LEIPZIG, "ulm: not connected", "jena: not connected", "bonn: not connected"))
    progress.see(GangEvent(kind="progress", text="busy", data={"event": "busy", "rank": 0, "phase": "wait"}))
    assert progress.sentence() == f"fedavg-7 {WAITS} · {LEIPZIG} · ulm: not connected · jena: not connected"
    progress.see(members(5, "ulm: not connected"))
    assert "waiting" not in progress.sentence()
    progress.see(GangEvent(kind="progress", text="round", data=json.loads(event("round", 1, 6))))
    progress.see(members(4, LEIPZIG))
    assert progress.sentence() == f"fedavg-7 round 1/8 loss 1 · 6 of 7 answered · {WAITS} · {LEIPZIG}"
    progress.see(GangEvent(kind="progress", text="round", data=json.loads(event("round", 2, 5))))
    assert "waiting" not in progress.sentence()


@pytest.mark.parametrize("wild", [{"accepted": "x"}, {"missing": 3}, {"missing": [{}, 7]}, {"quorum": None}])
def test_a_wild_word_of_members_shows_little_and_breaks_nothing(wild):
    progress = StageProgress("train")
    progress.see(GangEvent(kind="progress", text="members", data=members(1, "a").data | wild))
    assert "\n" not in progress.sentence()


def test_build_logs_print_each_change_of_members_at_once():
    said = []
    view = PlainView(said.append, clock=lambda: 0.0)
    view.stage_started("train")
    for each in (members(3, LEIPZIG, "ulm: not connected"), members(4, LEIPZIG), members(4, LEIPZIG)):
        view.progress("train", each)
    assert [each.split(" · ")[-1] for each in said] == ["ulm: not connected", LEIPZIG]
    assert said[1].startswith("train     waiting for members: 4 of 7")


def test_series_count_rounds_answers_refusals_and_bytes():
    book = SeriesStore()
    series = RankSeries("r", 0, book)
    series.observe(members(5, LEIPZIG).data)
    for each in (event("round_lost", 1, 3, budget=2, made_up=5), event("round", 1, 6)):
        series.observe(json.loads(each))
    values = {(each.name, *key): value for each, rows in book.values() for key, value in rows.items()}
    assert values["gangline_federated_round", "r"] == 1
    assert values["gangline_federated_lost_rounds_total", "r"] == 1
    assert values["gangline_federated_members", "r", "answered"] == 6
    assert values["gangline_federated_members", "r", "accepted"] == 5
    assert values["gangline_federated_refused_total", "r", "budget"] == 2
    assert values["gangline_federated_wire_bytes_total", "r", "up"] == 200
    assert values["gangline_train_step", "r"] == 5
    assert not any("made_up" in key for key in values)

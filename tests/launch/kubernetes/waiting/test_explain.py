"""Snapshots of waiting gangs, most of them recorded from a real server, against the sentences that they should give."""

import copy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.launch.kubernetes.waiting.seen import SNAPSHOTS, read, snapshot

from gangline.launch.kubernetes.waiting import explain
from gangline.launch.kubernetes.waiting.scheduler import read_verdict

FILES = {path.stem: read(path) for path in sorted(SNAPSHOTS.glob("*.json"))}
NEVER = {"image-not-found", "image-forbidden", "image-never", "image-invalid", "user", "queue-never", "quota-never",
         "refused", "secret", "trainer"}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_snapshot_gives_its_sentence(name):
    kept = FILES[name]
    found = explain(snapshot(kept))
    reported = found and {
        key: getattr(found, key) for key in ("kind", "sentence", "final_after_seconds", "holder", "until")
    }
    assert reported == kept["expect"]


def test_enough_snapshots_come_from_a_real_server():
    recorded = [name for name, kept in FILES.items() if kept["recorded"]]
    assert len(FILES) >= 50
    assert len(recorded) >= 40
    assert all(FILES[name]["server"].startswith("v1.") for name in recorded)


def test_only_what_no_one_can_wait_for_ends_a_gang():
    final = {kept["expect"]["kind"] for kept in FILES.values() if kept["expect"] and final_of(kept) is not None}
    assert final == NEVER


def final_of(kept):
    return kept["expect"]["final_after_seconds"]


def test_sentences_are_one_line_and_the_clusters_own_words_are_kept():
    for kept in FILES.values():
        found = explain(snapshot(kept))
        if found is not None:
            assert "\n" not in found.sentence
            assert len(found.sentence) <= 520
            assert not found.sentence.endswith(".")
    quota = explain(snapshot(FILES["quota"]))
    assert "used: requests.cpu=500m, limited: requests.cpu=500m" in quota.raw


def test_gravest_row_wins_over_one_that_passes():
    seen = snapshot(FILES["registry-down"])
    both = replace(seen, pods=[*seen.pods, *snapshot(FILES["forbidden"]).pods], num_nodes=2)
    assert explain(both).kind == "image-forbidden"


def test_event_of_yesterday_explains_nothing():
    seen = snapshot(FILES["pod-security"])
    later = replace(seen, now=seen.now + timedelta(minutes=16))
    assert (explain(seen).kind, explain(later).kind) == ("refused", "creating")


def test_quota_that_holds_some_pods_of_a_gang_but_never_all_is_reported_at_once():
    kept = copy.deepcopy(FILES["quota"])
    found = explain(replace(snapshot(kept), num_nodes=6))
    assert (found.kind, found.final_after_seconds) == ("quota-never", 0.0)
    assert found.sentence == "quota team can never satisfy it: 6 pods request 0.6 cpu, the limit is 0.5 cpu"


def test_quota_that_was_used_up_before_the_pods_came_is_history():
    kept = copy.deepcopy(FILES["quota"])
    for pod in kept["pods"]:
        pod["metadata"]["creationTimestamp"] = kept["now"]
    assert explain(snapshot(kept)).kind == "creating"


@given(st.text(max_size=200))
def test_any_words_of_a_scheduler_are_borne(words):
    for text in (words, f"0/3 nodes are available: {words}", f"0/3 nodes are available: 2 {words}, {words}."):
        verdict = read_verdict(text)
        assert verdict is None or verdict.servers


@given(st.text(max_size=200), st.sampled_from(["FailedCreate", "FailedMount", "Pulling", "FailedCreatePodSandBox"]))
def test_any_words_of_an_event_are_borne(words, reason):
    kept = copy.deepcopy(FILES["webhook-dead" if reason == "FailedCreate" else "secret-volume"])
    for event in kept["events"]:
        event |= {"reason": reason, "message": f"Error creating: exceeded quota: {words}"}
    assert explain(snapshot(kept)).sentence


def test_amounts_that_are_none_are_shown_as_they_are():
    kept = copy.deepcopy(FILES["quota"])
    for event in kept["events"]:
        event["message"] = "exceeded quota: team, requested: cpu=many, used: cpu=1, limited: cpu=2"
    assert explain(snapshot(kept)).sentence.startswith("quota team: exceeded quota: team, requested: cpu=many")


def test_guide_shows_sentences_as_they_are():
    guide = (Path(__file__).parents[4] / "docs" / "guides" / "why-it-waits.md").read_text()
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in guide.splitlines() if line.startswith("| `")]
    reported = {(f"`{kept['expect']['kind']}`", kept["expect"]["sentence"]): final_of(kept)
            for kept in FILES.values() if kept["expect"]}  # fmt: skip
    assert len(shown) > 30
    for kind, sentence, _, ends in shown:
        after = reported[kind, sentence]
        assert ends == ("-" if after is None else "at once" if after == 0 else f"{after:.0f} s")


def test_gang_that_waits_for_the_placer_says_what_would_start_now():
    assert explain(snapshot(FILES["placer-waits"])).would_start_now == "2 pods"

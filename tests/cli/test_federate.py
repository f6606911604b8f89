"""`gangline federate`: what an administrator sees before an approval, and what the approval is for."""

import json

import pytest
from tests.flare.offers import ROSTER, new_key, new_member, new_offer

OFFERED = {"epsilon": 4.0, "clip_grad": 1.0, "secure_sum": True, "clip_norm": 1.0}


@pytest.fixture
def member(tmp_path):
    """A member whose coordinator has made an offer."""
    kit, found = new_member(tmp_path, epsilon=8.0)
    key = new_key()
    found.answer(*new_offer(key, **OFFERED))
    return kit, found, key


def shown(gangline, kit, into):
    """Lines of `show` by their first word."""
    kit = str(kit.folder)
    [row] = json.loads(gangline("federate", "pending", "--kit", kit, "--json").output)
    done = gangline("federate", "show", row["offer"][:8], "--kit", kit, "--into", str(into))
    assert done.exit_code == 0, done.output
    return {line.partition(" ")[0]: line.partition(" ")[2].strip() for line in done.output.splitlines()}


def test_what_is_shown_is_what_is_approved(gangline, member, tmp_path):
    kit, found, _ = member
    listed = gangline("federate", "pending", "--kit", str(kit.folder)).output
    assert listed.split()[:2] == ["OFFER", "COMMIT"]
    assert "epsilon 4 of 8 left" in listed
    page = shown(gangline, kit, tmp_path / "read")
    assert page["roster"] == "aachen, bremen, celle; a quorum of 2 merges"
    assert page["asks"] == "for  3 trainings, epsilon 4 of 8 left, of 2 steps each"
    assert page["shows"] == "the coordinator sees sums alone"
    assert page["privacy"] == "delta 1e-05, gradient of each record clipped to 1"
    assert "task model:Digits" in page["project"]
    assert (tmp_path / "read/code/model.py").exists()
    assert json.loads((tmp_path / "read/plan.json").read_text())["federation"]["table"]["secure_sum"] is True
    words = page["next"].split()
    assert words[:3] == ["gangline", "federate", "approve"]
    done = gangline(*words[1:], "--kit", str(kit.folder))
    assert done.exit_code == 0, done.output
    assert found.pending() == []
    assert gangline("federate", "pending", "--kit", str(kit.folder)).output == "nothing is pending\n"


@pytest.mark.parametrize(
    "change", [{"roster": (*ROSTER, "dresden")}, {"secure_sum": False}, {"epsilon": None, "clip_grad": None}]
)
def test_an_offer_that_changes_between_show_and_approve_is_refused(gangline, member, tmp_path, change):
    kit, found, key = member
    words = shown(gangline, kit, tmp_path / "read")["next"].split()
    changed = new_offer(key, **OFFERED | change)
    found.answer(*changed)
    done = gangline(*words[1:], "--kit", str(kit.folder))
    assert done.exit_code == 50
    assert "found it changed or gone" in str(done.exception)
    assert found.answer(*changed).state == "pending"


def test_the_eight_digits_of_a_list_approve_nothing(gangline, member):
    kit, found, _ = member
    digits = next(found.codes.all()).offer.terms_digest[:8]
    done = gangline("federate", "approve", digits, "--kit", str(kit.folder))
    assert done.exit_code == 2
    assert "wanted the whole digest of an offer" in str(done.exception)
    assert len(found.pending()) == 1

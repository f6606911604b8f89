"""What a coordinator does with members that accept, wait, refuse and die; NVFlare's session is one of the test."""

import json
import os
import socket
from types import SimpleNamespace

import numpy as np
import pytest

from gangline.errors import CapacityError, GateError
from gangline.federated.mailbox import Mailbox, MailboxMembers
from gangline.federated.protocol import Acceptance, RoundCall
from gangline.flare.coordinator import Coordination, RunCoordinator
from gangline.flare.kit import Kit
from gangline.flare.member.federation_member import OfferAnswer
from gangline.flare.server import server

ROSTER = ("aachen", "bremen", "celle")
CALL = RoundCall(number=1, attempt=1, trains=True, weights={"w": np.zeros(2, np.float32)}, seconds=5.0)


class Session:
    """Jobs as an admin sees them; all members are connected."""

    def __init__(self):
        self.jobs = {}

    def get_system_info(self):
        return SimpleNamespace(client_info=[SimpleNamespace(name=name, last_connect_time=1e12) for name in ROSTER])

    def submit_job(self, folder):
        name = f"{folder.rpartition('/')[2]}-{len(self.jobs)}"
        self.jobs[name] = "RUNNING"
        return name

    def get_job_meta(self, job):
        return {"status": self.jobs[job]}


@pytest.fixture
def coordinator(tmp_path):
    found = Coordination(
        kit="", admin="", mailbox=str(tmp_path / "box"), roster=ROSTER, quorum=2, wait_seconds=1000.0
    )  # fmt: skip
    (tmp_path / "box").mkdir()
    box = Mailbox(tmp_path / "box")
    return RunCoordinator(
        folder=tmp_path, found=found, kit=Kit(tmp_path, "hub"), session=Session(), box=box, parent=os.getppid()
    )


def say(coordinator, **states):
    """Members answer the offer."""
    coordinator._look()
    for name, state in states.items():
        each = coordinator.candidates[name]
        each.answer = state if isinstance(state, OfferAnswer) else OfferAnswer(state=state)


def refused(reason):
    return OfferAnswer(state="refused", reason=reason, message=f"because of the {reason}")


class Waits(Exception):
    """The call has no answer yet."""


def asked(coordinator):
    """What the gang's rank gets for its call now."""

    def give_up():
        raise Waits

    return MailboxMembers(coordinator.box._folder, on_wait=give_up).ask(CALL)


def rounds_of(coordinator):
    return [job for job in coordinator.session.jobs if job.startswith("rounds")]


def test_no_quorum_in_time_is_exit_20_and_says_who_is_missing(coordinator):
    say(coordinator, aachen="accepted", bremen=OfferAnswer(state="pending", message="approval is pending"))
    with pytest.raises(Waits):
        asked(coordinator)
    coordinator._train()
    with pytest.raises(Waits):
        asked(coordinator)
    coordinator.since -= 1000.0
    coordinator._train()
    with pytest.raises(
        CapacityError, match="wanted 2 members, 1 of 3 have accepted: bremen: approval is pending; celle"
    ):
        asked(coordinator)


@pytest.mark.parametrize(("reason", "error"), [("budget", GateError), ("code", CapacityError), ("data", CapacityError)])
def test_refusals_that_leave_no_quorum_end_the_wait_at_once(coordinator, reason, error):
    say(coordinator, aachen="accepted", bremen=refused(reason), celle=refused(reason))
    with pytest.raises(Waits):
        asked(coordinator)
    coordinator._train()
    with pytest.raises(error, match=f"bremen: because of the {reason}"):
        asked(coordinator)


def test_the_job_that_trains_goes_to_those_that_accepted_and_ends_for_one_more(coordinator):
    say(coordinator, aachen="accepted", bremen="accepted")
    coordinator._train()
    [job] = rounds_of(coordinator)
    meta = json.loads((coordinator.folder / "jobs/rounds/meta.json").read_text())
    assert meta["mandatory_clients"] == ["aachen", "bremen"]
    say(coordinator, celle="accepted")
    coordinator._train()
    assert coordinator.handover.exists()
    coordinator.session.jobs[job] = "FINISHED:COMPLETED"
    coordinator._train()
    coordinator._train()
    assert coordinator.members == ROSTER
    assert coordinator.deaths == 0


def test_a_job_that_dies_loses_the_open_round_and_after_three_all_are_asked_again(coordinator):
    say(coordinator, aachen="accepted", bremen="accepted", celle="accepted")
    for death in (1, 2, 3):
        coordinator._train()
        job = rounds_of(coordinator)[-1]
        with pytest.raises(Waits):
            asked(coordinator)
        coordinator.session.jobs[job] = "FINISHED:EXECUTION_EXCEPTION"
        coordinator._train()
        assert asked(coordinator).contributions == ()
        (coordinator.box._folder / "answers").rename(coordinator.folder / f"answers-{death}")
    assert len(rounds_of(coordinator)) == 3
    assert coordinator._accepted() == ()
    assert coordinator.deaths == 0


def test_the_rank_hears_who_takes_part(coordinator):
    say(coordinator, aachen="accepted", bremen=refused("code"))
    assert coordinator._missing() == ("bremen: because of the code", "celle: connected")
    heard = []
    coordinator.box.tell(Acceptance(accepted=1, missing=coordinator._missing()))
    members = MailboxMembers(coordinator.box._folder, on_acceptance=heard.append)
    members._hear()
    assert heard == [Acceptance(accepted=1, missing=("bremen: because of the code", "celle: connected"))]


def test_a_port_that_is_taken_is_named_before_a_server_starts(tmp_path):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "startup").mkdir()
        plain = {"servers": [{"service": {"target": f"hub.example:{port}"}}]}
        (tmp_path / "startup/fed_server.json").write_text(json.dumps(plain))
        with (
            pytest.raises(CapacityError, match=f"wanted port {port} for NVFlare's server"),
            server(Kit(tmp_path, "hub"), os.environ, most_message_bytes=1),
        ):
            pass
    assert not (tmp_path / "gangline").exists()

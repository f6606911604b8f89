"""A coordinator keeps a job running at members that accepted: against a session of NVFlare that plays what happens."""

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.flare.offers import LAYER, ROSTER, new_orders, new_plan, write_kit
from tests.ports import free_port

from gangline.errors import CapacityError, GateError
from gangline.federated.mailbox import Mailbox, MailboxMembers
from gangline.federated.protocol import Acceptance, RoundCall
from gangline.flare import coordinator
from gangline.flare.coordinator import RunCoordinator, main
from gangline.flare.kit import Kit, read_states
from gangline.flare.member.federation_member import OfferAnswer
from gangline.flare.orders import Coordination, prepare
from gangline.flare.server import admin_session, server

CALL = RoundCall(number=1, attempt=1, trains=True, weights={"w": np.zeros(2, np.float32)}, seconds=60.0)
YES = OfferAnswer(state="accepted")
PENDING = OfferAnswer(state="pending", message="approval is pending")
OVER = OfferAnswer(state="refused", reason="budget", message="wanted epsilon 4, found 1 left")


@dataclass
class Clock:
    """Time of a coordinator, in which something happens at each sleep; then its mailbox is closed."""

    box: Path
    happens: list = field(default_factory=list)
    now: float = 1000.0

    def monotonic(self):
        return self.now

    time = monotonic

    def sleep(self, seconds):
        self.now += seconds
        if self.happens:
            self.happens.pop(0)()
        else:
            MailboxMembers(self.box).close()


@dataclass
class Session:
    """NVFlare's session: offers are answered at once, jobs run until they are said to have ended."""

    clock: Clock
    says: dict
    jobs: list = field(default_factory=list)
    silent_seconds: dict = field(default_factory=dict)

    def submit_job(self, folder):
        meta = json.loads((Path(folder) / "meta.json").read_text())
        [workflow] = json.loads((Path(folder) / "app/config/config_fed_server.json").read_text())["workflows"]
        job = SimpleNamespace(name=meta["name"], members=meta["mandatory_clients"], status="RUNNING")
        if (folder := workflow["args"].get("answers")) is not None:
            job.status = self._answer(Path(folder), workflow["args"]["members"])
        self.jobs.append(job)
        return len(self.jobs) - 1

    def _answer(self, folder, members):
        """A job that offers; NVFlare ends it as a whole where a client does not run it."""
        if any(self.says[name] is None for name in members):
            return "FINISHED:EXECUTION_EXCEPTION"
        for name in members:
            (folder / f"{name}.json").write_bytes(self.says[name].to_json())
        return "FINISHED:COMPLETED"

    def get_job_meta(self, number):
        return {"status": self.jobs[int(number)].status}

    def abort_job(self, number):
        self.jobs[int(number)].status = "FINISHED:ABORTED"

    def get_system_info(self):
        ago = self.silent_seconds
        clients = [SimpleNamespace(name=name, last_connect_time=self.clock.now - ago.get(name, 0)) for name in ROSTER]
        return SimpleNamespace(client_info=clients)

    @property
    def trainings(self):
        return [job for job in self.jobs if job.name == "rounds"]

    def offers(self, name):
        return sum(job.name.startswith("offer") and name in job.members for job in self.jobs)

    def offered(self):
        return [job.members for job in self.jobs if job.name.startswith("offer")]

    def end_training(self):
        """The job that trains dies."""
        self.trainings[-1].status = "FINISHED:EXECUTION_EXCEPTION"


@pytest.fixture
def stand(tmp_path, monkeypatch):
    """Function that runs a coordinator through what happens; returns its session and the members of its rank."""

    def run(*happens, says, quorum=2, silent_seconds=None, wait_seconds=600.0):
        box = tmp_path / "box"
        box.mkdir()
        clock = Clock(box)
        session = Session(clock, says, silent_seconds=silent_seconds or {})
        clock.happens = [step(session) if step is not None else (lambda: None) for step in happens]
        monkeypatch.setattr(coordinator, "time", clock)
        found = Coordination(kit="", admin="", mailbox=str(box), roster=ROSTER, quorum=quorum,
                             wait_seconds=wait_seconds)  # fmt: skip
        prepare(tmp_path / "run", found, new_orders(new_plan(), LAYER), LAYER)
        members = MailboxMembers(box, on_wait=stop)
        with suppress(Waiting):
            members.ask(CALL)
        kit = write_kit(tmp_path / "kit")
        kit.own.mkdir()
        RunCoordinator(
            folder=tmp_path / "run", found=found, kit=kit, session=session, box=Mailbox(box), parent=os.getppid(),
            since=clock.now,
        ).run()  # fmt: skip
        states = {each.name: each.state for each in read_states(kit)}
        return session, members, states

    return run


class Waiting(Exception):
    """A call waits for its answer."""


def stop():
    raise Waiting


def all_say(answer):
    return dict.fromkeys(ROSTER, answer)


def quiet(seconds):
    return [None] * seconds


def die(session):
    return session.end_training


def test_a_job_that_dies_loses_the_open_round_and_the_next_one_goes_at_once(stand):
    session, members, _ = stand(*quiet(3), die, *quiet(3), says=all_say(YES))
    assert [each.members for each in session.trainings] == [list(ROSTER)] * 2
    assert members.ask(CALL).contributions == ()
    assert session.offers("aachen") == 1


@pytest.mark.row("FL6")
@pytest.mark.parametrize(("deaths", "offers"), [(2, 1), (3, 2)])
def test_after_three_jobs_in_a_row_that_died_all_are_asked_again(stand, deaths, offers):
    session, _, _ = stand(*quiet(3), *([die, *quiet(3)] * deaths), says=all_say(YES))
    assert [session.offers(name) for name in ROSTER] == [offers] * 3
    assert len(session.trainings) == deaths + 1


def test_a_member_that_accepts_later_ends_the_job_with_its_round(stand, tmp_path):
    def accept(session):
        return lambda: session.says.update(celle=YES)

    def ends(session):
        def step():
            assert (tmp_path / "run/handover").exists()
            session.trainings[-1].status = "FINISHED:COMPLETED"

        return step

    session, members, states = stand(
        *quiet(12), accept, *quiet(35), ends, *quiet(5), says=all_say(YES) | {"celle": PENDING}
    )
    assert [each.members for each in session.trainings] == [["aachen", "bremen"], list(ROSTER)]
    assert states == dict.fromkeys(ROSTER, "accepted")
    with pytest.raises(Waiting):
        members.ask(CALL)  # a job that hands over has answered the open round, or leaves it to the next


def test_a_pending_offer_is_repeated_every_half_minute_and_an_accepted_one_never(stand):
    session, _, _ = stand(*quiet(100), says=all_say(YES) | {"celle": PENDING})
    assert session.offered()[1:] == [["celle"]] * 4


def test_members_that_are_there_are_asked_by_one_job(stand):
    session, _, _ = stand(*quiet(3), says=all_say(YES))
    assert session.offered() == [list(ROSTER)]


@pytest.mark.row("FL6")
def test_a_member_that_runs_no_offer_stops_no_other(stand):
    session, _, states = stand(*quiet(20), says=all_say(YES) | {"celle": None})
    assert session.offered() == [list(ROSTER), *([name] for name in ROSTER)]
    assert session.trainings[0].members == ["aachen", "bremen"]
    assert states == {"aachen": "accepted", "bremen": "accepted", "celle": "connected"}


def test_a_client_without_a_heartbeat_is_not_asked(stand):
    session, _, states = stand(*quiet(20), says=all_say(YES), silent_seconds={"celle": 61.0})
    assert session.trainings[0].members == ["aachen", "bremen"]
    assert (session.offers("celle"), states["celle"]) == (0, "absent")


@pytest.mark.parametrize(("reason", "error"), [("budget", GateError), ("code", CapacityError), ("data", CapacityError)])
def test_refusals_that_leave_no_quorum_end_the_wait_at_once(stand, reason, error):
    refused = replace(OVER, reason=reason)
    _, members, _ = stand(*quiet(3), says=all_say(refused) | {"aachen": YES})
    with pytest.raises(error, match="wanted 2 members, 1 of 3 have accepted: bremen: wanted epsilon 4"):
        members.ask(CALL)


def test_a_quorum_that_does_not_come_in_time_is_no_room(stand):
    says = all_say(PENDING) | {"aachen": YES}
    _, members, _ = stand(*quiet(20), says=says, wait_seconds=10.0)
    with pytest.raises(CapacityError, match="celle: approval is pending"):
        members.ask(CALL)


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Function that runs `main` while its server fails so; returns the words that it starts again with, and members."""

    def run(error, *words):
        box = tmp_path / "box"
        box.mkdir()
        members, again = MailboxMembers(box, on_wait=stop), []
        with suppress(Waiting):
            members.ask(CALL)
        found = Coordination(kit="", admin="", mailbox=str(box), roster=ROSTER, quorum=2, wait_seconds=60.0)
        prepare(tmp_path / "run", found, new_orders(new_plan(), LAYER), LAYER)

        def serve(*_, **__):
            raise error

        monkeypatch.setattr(coordinator, "_serve", serve)
        monkeypatch.setattr(coordinator.signal, "signal", lambda *_: None)
        monkeypatch.setattr(coordinator.os, "execv", lambda _, arguments: again.extend(arguments[3:]))
        main([str(tmp_path / "run"), *words])
        return again, members

    return run


@pytest.mark.row("FL6")
def test_a_server_that_dies_while_it_starts_loses_the_open_round_and_is_started_again(begun, tmp_path):
    again, members = begun(ConnectionError("wanted NVFlare's server, found it ended"))
    assert again == [str(tmp_path / "run"), "1"]
    assert members.ask(CALL).contributions == ()


def test_a_server_that_died_five_times_is_given_up_with_its_last_word(begun):
    again, members = begun(ConnectionError("found it ended"), "4")
    assert again == []
    with pytest.raises(CapacityError, match="died 5 times, at last: ConnectionError: found it ended"):
        members.ask(CALL)


def test_a_port_that_is_taken_is_said_at_once(begun):
    again, members = begun(CapacityError("wanted port 8002 for NVFlare's server"))
    assert again == []
    with pytest.raises(CapacityError, match="wanted port 8002"):
        members.ask(CALL)


@pytest.mark.row("FL6")
def test_a_server_that_ends_while_it_starts_is_no_last_word(tmp_path):
    pytest.importorskip("nvflare", reason="nvflare is not installed")
    (tmp_path / "startup").mkdir()
    address = {"host": "localhost", "port": free_port()}
    (tmp_path / "startup/fed_admin.json").write_text(json.dumps({"admin": address}))
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(ConnectionError, match="wanted NVFlare's server"), admin_session(Kit(tmp_path, "a"), process):
        pass


def test_the_rank_hears_who_takes_part(tmp_path):
    told = Acceptance(accepted=1, missing=("bremen: because of the code", "celle: connected"))

    def hear(heard):
        assert heard == told
        raise Waiting

    Mailbox(tmp_path).tell(told)
    with pytest.raises(Waiting):
        MailboxMembers(tmp_path, on_acceptance=hear).ask(CALL)


@pytest.mark.row("FL6")
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

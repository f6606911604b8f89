"""Coordinator of one federated run: a process next to the gang that asks members to take part and keeps a job running.

python -m gangline.flare.coordinator FOLDER, with what `orders.prepare` wrote there. Members that are there at the same
time are offered the run by one small job; what that leaves open is asked by a job for each member, so that none stops
another one. The job that trains goes to those that accepted, ends with a round when others did meanwhile, and is
submitted again when it died: the round that was open is lost, and no more.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gangline.errors import SIGTERM_CODE, CapacityError, GanglineError, GateError
from gangline.federated.mailbox import Mailbox
from gangline.federated.protocol import Acceptance, RoundAnswers, most_bytes
from gangline.flare.join import EXECUTOR
from gangline.flare.kit import ADMIN, SERVER, Kit, MemberState, answer_file, open_kit, write_states
from gangline.flare.member.federation_member import OfferAnswer
from gangline.flare.orders import Coordination
from gangline.flare.server import CONTROLLERS, admin_session, server

MODULE = "gangline.flare.coordinator"
_POLL_SECONDS = 1.0
_OFFER_AGAIN_SECONDS = 30.0
_GRACE_SECONDS = 8.0
_SILENT_SECONDS = 60.0
"""A client without a heartbeat for so long is not connected; NVFlare itself waits ten minutes."""
_MOST_DEATHS = 3
_MOST_GENERATIONS = 5
_MORE_BYTES = 4 << 20
"""Bytes that a message may have in addition to the tensors."""


@dataclass(slots=True)
class _Candidate:
    """A member that is asked to take part."""

    name: str
    answer: OfferAnswer | None = None
    job: str | None = None
    """The offer that is on its way."""
    is_alone: bool = False
    """An offer to several members left its answer open: the next one goes to it alone."""
    offered_at: float = -_OFFER_AGAIN_SECONDS
    is_connected: bool = False
    failure: str = ""
    """How the last offer failed, if it did."""

    @property
    def accepted(self) -> bool:
        return self.answer is not None and self.answer.state == "accepted"

    @property
    def known(self) -> MemberState:
        if self.answer is not None and self.answer.state == "refused":
            return MemberState(name=self.name, state="refused", reason=self.answer.reason, message=self.answer.message)
        if not self.is_connected:
            return MemberState(name=self.name, message="not connected")
        if self.answer is None:
            return MemberState(name=self.name, state="connected", message=self.failure)
        return MemberState(name=self.name, state=self.answer.state, message=self.answer.message)

    @property
    def is_due(self) -> bool:
        done = self.answer is not None and self.answer.state in ("accepted", "refused")
        waited = time.monotonic() - self.offered_at >= _OFFER_AGAIN_SECONDS
        return self.is_connected and not done and self.job is None and waited


@dataclass(slots=True)
class RunCoordinator:
    """One generation of it."""

    folder: Path
    found: Coordination
    kit: Kit
    session: Any
    box: Mailbox
    parent: int
    """Process that started this one: it ends with it."""
    candidates: dict[str, _Candidate] = field(default_factory=dict)
    job: str | None = None
    """The job that trains."""
    members: tuple[str, ...] = ()
    """Those that take part in it."""
    deaths: int = 0
    """Jobs in a row that died."""
    since: float = field(default_factory=time.monotonic)
    last_yes: float = 0.0
    """When a member accepted last."""

    def __post_init__(self) -> None:
        self.candidates = {name: _Candidate(name) for name in self.found.roster}

    @property
    def handover(self) -> Path:
        """File that makes a job which trains end with its round."""
        return self.folder / "handover"

    def run(self) -> None:
        """Coordinate until the gang's rank asks nothing more, or the process that started this one ends."""
        while not self.box.is_closed and os.getppid() == self.parent:
            self._look()
            for group in self._due():
                self._offer(group)
            for candidate in self.candidates.values():
                self._hear(candidate)
            self._train()
            write_states(self.kit, [each.known for each in self._sorted()])
            self.box.tell(Acceptance(accepted=len(self._accepted()), missing=self._missing()))
            time.sleep(_POLL_SECONDS)
        if self.job is not None:
            self._end_job(self.job)

    def _sorted(self) -> list[_Candidate]:
        return [self.candidates[name] for name in sorted(self.candidates)]

    def _look(self) -> None:
        """See who is connected."""
        clients, now = self.session.get_system_info().client_info, time.time()
        connected = {client.name for client in clients if now - client.last_connect_time < _SILENT_SECONDS}
        for candidate in self.candidates.values():
            candidate.is_connected = candidate.name in connected

    def _due(self) -> list[list[_Candidate]]:
        """Members that are to be asked now, by job."""
        due = [candidate for candidate in self._sorted() if candidate.is_due]
        together = [candidate for candidate in due if not candidate.is_alone]
        return [*([together] if together else []), *([candidate] for candidate in due if candidate.is_alone)]

    def _offer(self, group: Sequence[_Candidate]) -> None:
        """Offer the run to members by one job: NVFlare starts a process for it here, and one at each of them."""
        answers, names = self.folder / "answers", tuple(each.name for each in group)
        answers.mkdir(exist_ok=True)
        for name in names:
            answer_file(answers, name).unlink(missing_ok=True)
        arguments = {"offer": str(self.folder), "members": list(names), "answers": str(answers)}
        job = self._submit(f"offer-{names[0]}" if len(names) == 1 else "offer", names, CONTROLLERS[0], arguments)
        for candidate in group:
            candidate.job, candidate.offered_at, candidate.is_alone = job, time.monotonic(), len(group) == 1

    def _hear(self, each: _Candidate) -> None:
        """Read what a member said to an offer that is on its way."""
        if each.job is None:
            return
        file = answer_file(self.folder / "answers", each.name)
        if file.exists():
            before, each.answer = each.accepted, OfferAnswer.from_json(file.read_bytes())
            self.last_yes = self.last_yes if each.accepted == before else time.monotonic()
        if (status := self._status(each.job)).startswith("FINISHED"):
            each.job = None
            each.failure = "" if file.exists() else f"its NVFlare client ran no offer ({status}): did it join?"
            if not each.is_alone:  # another member may have ended that job
                each.is_alone, each.offered_at = True, -_OFFER_AGAIN_SECONDS

    def _train(self) -> None:
        """Keep a job running at those that accepted, while they are a quorum."""
        if self.job is not None:
            status = self._status(self.job)
            if status.startswith("FINISHED"):
                self._ended(is_death=not self.handover.exists() and not self.box.is_closed)
            elif set(self._accepted()) - set(self.members) and not self.handover.exists():
                self.handover.touch()
            return
        accepted = self._accepted()
        if len(accepted) < self.found.quorum:
            self._require_hope()
        elif not self._is_worth_waiting():
            self.handover.unlink(missing_ok=True)
            arguments = {
                "mailbox": self.found.mailbox, "offer": str(self.folder), "members": list(accepted),
                "roster": list(self.found.roster), "handover": str(self.handover),
            }  # fmt: skip
            self.members = accepted
            self.job = self._submit("rounds", accepted, CONTROLLERS[1], arguments)
            self.since = time.monotonic()

    def _accepted(self) -> tuple[str, ...]:
        """Members that take part."""
        return tuple(candidate.name for candidate in self._sorted() if candidate.accepted and candidate.is_connected)

    def _missing(self) -> tuple[str, ...]:
        """The others, each with the reason."""
        states, accepted = [candidate.known for candidate in self._sorted()], self._accepted()
        return tuple(f"{state.name}: {state.message or state.state}" for state in states if state.name not in accepted)

    def _is_worth_waiting(self) -> bool:
        """Whether another member may say yes within seconds, so that one job serves it, too."""
        undecided = any(
            candidate.is_connected and candidate.known.state in ("connected", "pending") for candidate in self._sorted()
        )
        return undecided and time.monotonic() - self.last_yes < _GRACE_SECONDS

    def _ended(self, *, is_death: bool) -> None:
        """A job that trains has ended: the open round is lost if it died, and the next one is submitted at once."""
        self.job, self.since = None, time.monotonic()
        self.deaths = self.deaths + 1 if is_death else 0
        call = self.box.next_call() if is_death else None
        if call is not None:
            self.box.answer(call, RoundAnswers(contributions=()))
        if self.deaths >= _MOST_DEATHS:
            self.deaths = 0
            for candidate in self.candidates.values():
                candidate.answer, candidate.offered_at, candidate.is_alone = None, -_OFFER_AGAIN_SECONDS, False

    def _require_hope(self) -> None:
        """Tell the rank that there is no quorum, once the wait was long enough or enough members have refused."""
        states = [candidate.known for candidate in self._sorted()]
        refused = [state for state in states if state.state == "refused"]
        hopeless = len(states) - len(refused) < self.found.quorum
        if not hopeless and time.monotonic() - self.since < self.found.wait_seconds:
            return
        call = self.box.next_call()
        if call is None:
            return
        said, count = "; ".join(self._missing()), len(self._accepted())
        text = f"wanted {self.found.quorum} members, {count} of {len(states)} have accepted: {said}"
        is_budget = hopeless and any(state.reason == "budget" for state in refused)
        self.box.fail(call, GateError(text) if is_budget else CapacityError(text))

    def _submit(self, name: str, members: Sequence[str], controller: str, arguments: dict[str, Any]) -> str:
        """A job that is configuration only."""
        folder = self.folder / "jobs" / name
        config = folder / "app" / "config"
        config.mkdir(parents=True, exist_ok=True)
        meta = {
            "name": name, "resource_spec": {}, "min_clients": len(members), "mandatory_clients": list(members),
            "deploy_map": {"app": ["server", *members]},
        }  # fmt: skip
        workflow = {"id": "rounds", "path": controller, "args": arguments}
        executor = {"tasks": ["*"], "executor": {"path": EXECUTOR, "args": {}}}
        written = {
            folder / "meta.json": meta,
            config / "config_fed_server.json": {"format_version": 2, "workflows": [workflow], "components": []},
            config / "config_fed_client.json": {"format_version": 2, "executors": [executor], "components": []},
        }
        for path, plain in written.items():
            path.write_text(json.dumps(plain))
        return str(self.session.submit_job(str(folder)))

    def _status(self, job: str) -> str:
        return str(self.session.get_job_meta(job)["status"])

    def _end_job(self, job: str) -> None:
        """Wait a little for a job whose mailbox is closed, then abort it."""
        for _ in range(20):
            if self._status(job).startswith("FINISHED"):
                return
            time.sleep(0.5)
        self.session.abort_job(job)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the coordinator of a folder; returns the exit code."""
    words = list(arguments or sys.argv[1:])
    folder, generation = Path(words[0]), int(words[1]) if words[1:] else 0
    coordination = Coordination.from_json((folder / "coordination.json").read_bytes())
    box, parent = Mailbox(Path(coordination.mailbox)), os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(SIGTERM_CODE))  # so that the server ends, too
    try:
        while (call := box.next_call()) is None:
            if box.is_closed or os.getppid() != parent:
                return 0
            time.sleep(_POLL_SECONDS)
        _serve(folder, coordination, box, parent=parent, most_message_bytes=most_bytes(call.weights) + _MORE_BYTES)
    except GanglineError as error:
        if (call := box.next_call()) is not None:
            box.fail(call, error)
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Exception as error:  # nvflare raises many kinds where its server is gone
        cause = f"{type(error).__name__}: {error}"
        sys.stderr.write(f"NVFlare's server is lost: {cause}\n")
        _begin_again(folder, box, generation + 1, found=cause)
    return 0


def _serve(folder: Path, found: Coordination, box: Mailbox, *, parent: int, most_message_bytes: int) -> None:
    """Run a server and the coordinator with it.

    Raises:
        CapacityError: The server's port is taken.
        ConfigError: A kit lacks a file.
        Exception: Whatever NVFlare raises where its server is lost.
    """
    kit, admin = open_kit(Path(found.kit), SERVER), open_kit(Path(found.admin), ADMIN)
    with (
        server(kit, os.environ, most_message_bytes=most_message_bytes) as process,
        admin_session(admin, process) as session,
    ):
        RunCoordinator(folder=folder, found=found, kit=kit, session=session, box=box, parent=parent).run()


def _begin_again(folder: Path, box: Mailbox, generation: int, *, found: str) -> None:
    """Replace this process by the next generation: the round that was open is lost; nvflare connects once a process."""
    call = box.next_call()
    if generation >= _MOST_GENERATIONS:
        if call is not None:
            text = (
                f"NVFlare's server died {generation} times, at last: {found}; gangline/server.log in its kit says why"
            )
            box.fail(call, CapacityError(text))
        return
    if call is not None:
        box.answer(call, RoundAnswers(contributions=()))
    os.execv(sys.executable, [sys.executable, "-m", MODULE, str(folder), str(generation)])  # noqa: S606  # no shell is meant


if __name__ == "__main__":
    sys.exit(main())

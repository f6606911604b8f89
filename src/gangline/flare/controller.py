"""NVFlare's side of a coordinator, in the job processes of its server: offers a run to a member, and carries rounds.

Calls come from the gang's rank through a mailbox, and answers go back through it. What a client sent is read as bytes,
checked, and refused by reason; NVFlare's own arrays are not taken, for they are downloaded without a limit.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import ReturnCode, Shareable
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet import cell
from nvflare.fuel.f3.cellnet.utils import decode_payload
from nvflare.fuel.utils.fobs import dots, fobs

from gangline.errors import IntegrityError
from gangline.federated.mailbox import Mailbox
from gangline.federated.protocol import RoundAnswers, RoundCall
from gangline.flare.kit import answer_file
from gangline.flare.member.federation_member import OfferAnswer
from gangline.flare.offer import Offer
from gangline.flare.open_round import PlainRound, Received, SummedRound
from gangline.flare.wire import OFFER, SUM, TRAIN, bytes_of, call_payload, refused_payload
from gangline.storage.folder.durable_files import replace_file

_POLL_SECONDS = 0.1
_OFFER_SECONDS = 120
_ASK_AGAIN_SECONDS = 2.0
_TOGETHER_SECONDS = 20.0
"""Time in which several members may approve before each that is left has a job of its own."""


class _BytesController(Controller):  # type: ignore[misc]  # nvflare has no types
    """A controller that decodes bytes alone; nothing is prepared before its flow, and nothing kept after it."""

    def __init__(self) -> None:
        super().__init__()
        take_bytes_alone()

    def start_controller(self, fl_ctx: FLContext) -> None:
        pass

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass


class OfferController(_BytesController):
    """Offers the run to members and writes down what each of them said."""

    def __init__(self, *, offer: str, members: list[str], answers: str) -> None:
        """Args:
        offer: Folder with `offer.json`, `signature` and `layer.zip`.
        members: Names of their certificates.
        answers: Folder that each answer is written into.
        """
        super().__init__()
        self._offer, self._members, self._folder = Path(offer), members, Path(answers)
        self._answers: dict[str, OfferAnswer] = {}

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Ask all, and those where the code waits for approval again: one alone for ever, several for a while."""
        payload, asked = signed_offer(self._offer), self._members
        self._ask(asked, payload | {"layer": (self._offer / "layer.zip").read_bytes()}, abort_signal, fl_ctx)
        closes = time.monotonic() + _TOGETHER_SECONDS
        while (asked := self._pending) and not abort_signal.triggered:
            if len(self._members) > 1 and time.monotonic() > closes:
                return
            time.sleep(_ASK_AGAIN_SECONDS)
            self._ask(asked, payload, abort_signal, fl_ctx)

    @property
    def _pending(self) -> list[str]:
        return [name for name, answer in self._answers.items() if answer.state == "pending"]

    def _ask(self, members: list[str], payload: dict[str, Any], abort_signal: Signal, fl_ctx: FLContext) -> None:
        """One question to members; those that do not answer in time leave no answer."""
        self._answers.clear()
        task = Task(OFFER, Shareable(payload), timeout=_OFFER_SECONDS, result_received_cb=self._received)
        self.broadcast_and_wait(
            task, fl_ctx, targets=members, min_responses=len(members), abort_signal=abort_signal
        )  # fmt: skip

    def _received(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        del fl_ctx
        name = client_task.client.name
        try:
            answer = OfferAnswer.from_json(bytes_of(client_task.result, "answer")[:65_536])
        except IntegrityError:
            answer = OfferAnswer(state="refused", reason="error", message="its executor answered no offer")
        self._answers[name] = answer
        replace_file(answer_file(self._folder, name), answer.to_json(), durable=False)
        client_task.result = None

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """An answer that comes after the task has ended says nothing."""


class RoundsController(_BytesController):
    """Carries calls to members and their answers back until the mailbox is closed, or another job takes over."""

    def __init__(self, *, mailbox: str, offer: str, members: list[str], roster: list[str], handover: str) -> None:
        """Args:
        mailbox: Folder of calls and answers.
        offer: Folder with `offer.json` and `signature`.
        members: Those that take part in this job.
        roster: Those that may take part at all.
        handover: File that appears when this job has to end with a round.
        """
        super().__init__()
        self._box, self._offer, self._handover = Mailbox(Path(mailbox)), Path(offer), Path(handover)
        self._members, self._roster = members, tuple(roster)
        self._terms = Offer.from_json((self._offer / "offer.json").read_bytes()).terms
        self._round: PlainRound | SummedRound | None = None

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Rounds, one after the other."""
        while not abort_signal.triggered and not self._box.is_closed and not self._handover.exists():
            call = self._box.next_call()
            if call is None:
                time.sleep(_POLL_SECONDS)
                continue
            ask = partial(self._ask, abort_signal, fl_ctx)
            payload = signed_offer(self._offer) | call_payload(call)
            answers = (
                self._summed(call, payload, ask) if self._terms.table.secure_sum else self._plain(call, payload, ask)
            )
            if abort_signal.triggered:
                return  # the call stays open: it is lost, and its coordinator says so
            down = answers.bytes_down + len(self._members) * len(payload["weights"])
            self._box.answer(call, replace(answers, bytes_down=down, engine=f"nvflare {version('nvflare')}"))

    def _plain(self, call: RoundCall, payload: dict[str, Any], ask: Callable[..., None]) -> RoundAnswers:
        """One message of a round: members train and answer."""
        self._round = found = PlainRound(call, self._roster)
        ask(TRAIN, payload, members=self._members, received=found.received, seconds=call.seconds)
        return found.answers()

    def _summed(self, call: RoundCall, payload: dict[str, Any], ask: Callable[..., None]) -> RoundAnswers:
        """Two messages of a round: members train and send keys, then those that did send masked answers."""
        closes = time.monotonic() + call.seconds
        self._round = summed_round = SummedRound(call, self._terms.plan, self._roster)
        ask(TRAIN, payload, members=self._members, received=summed_round.received_key, seconds=call.seconds)
        if summed_round.ready:
            left = closes - time.monotonic()
            ask(
                SUM,
                summed_round.payload(),
                members=summed_round.ready,
                received=summed_round.received_vector,
                seconds=left,
            )
        return summed_round.answers()

    def _ask(
        self, abort_signal: Signal, context: FLContext, name: str, payload: dict[str, Any], *,
        members: Sequence[str], received: Received, seconds: float,
    ) -> None:  # fmt: skip
        """Send one task to members and wait until all of them have answered, or the time is up."""

        def taken(client_task: ClientTask, fl_ctx: FLContext) -> None:
            del fl_ctx  # its name is NVFlare's
            result = client_task.result
            is_error = result.get_return_code() != ReturnCode.OK
            received(client_task.client.name, refused_payload("error") if is_error else result)
            client_task.result = None

        task = Task(name, Shareable(payload), timeout=max(1, int(seconds)), result_received_cb=taken)
        self.broadcast_and_wait(
            task, context, targets=list(members), min_responses=len(members), abort_signal=abort_signal
        )  # fmt: skip

    def process_result_of_unknown_task(
        self, client: Any, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """An answer to a round that has closed, or a second one."""
        del task_name, client_task_id, result, fl_ctx
        if self._round is not None:
            self._round.refused.append((client.name, "old_round"))


def signed_offer(folder: Path) -> dict[str, Any]:
    """Offer and signature as they are sent."""
    return {"offer": (folder / "offer.json").read_bytes(), "signature": (folder / "signature").read_text()}


def take_bytes_alone() -> None:
    """Let this process decode no arrays of NVFlare's, which it would fetch from the sender at any size.

    NVFlare ends the job process of a server when it cannot decode an answer: here such an answer is empty, and refused.
    """
    fobs._decomposers.pop("numpy.ndarray", None)  # noqa: SLF001  # there is no public way
    fobs._dot_handlers.pop(dots.NUMPY_DOWNLOAD, None)  # noqa: SLF001  # likewise
    cell.decode_payload = _decode_or_empty


def _decode_or_empty(message: Any, *arguments: Any, **options: Any) -> None:
    try:
        decode_payload(message, *arguments, **options)
    except Exception:  # of bytes that a client chose
        message.payload = Shareable()

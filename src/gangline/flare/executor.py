"""The one class of NVFlare jobs that a member allows: answers offers, and calls of rounds by a local gang.

It runs in NVFlare's job process and is thin on purpose: NVFlare ends a whole job when such a process dies, so model
code runs in a process of its own, and whatever it does is an answer here.
"""

from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from gangline.errors import CapacityError, ConfigError, GanglineError, GateError, IntegrityError
from gangline.flare.join import require_closed
from gangline.flare.kit import CLIENT, Kit, open_kit
from gangline.flare.member.federation_member import FederationMember, OfferAnswer
from gangline.flare.member.local_gang import LocalGang
from gangline.flare.member.sums import MemberSums
from gangline.flare.offer import Offer, read_offer
from gangline.flare.wire import (
    OFFER,
    SUM,
    answer_payload,
    bytes_of,
    key_payload,
    masked_payload,
    read_call,
    read_sum,
    refused_payload,
)
from gangline.spec.federated import RefusedReason


class MemberExecutor(Executor):  # type: ignore[misc]  # nvflare has no types
    """Executor of tasks at a member."""

    def __init__(self) -> None:
        super().__init__()
        self._offer: Offer | None = None
        self._gang: LocalGang | None = None
        self._sums: MemberSums | None = None

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer one task; no error leaves this process, and one word says that there was one."""
        try:
            kit = open_kit(Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir()), CLIENT)
            require_closed(kit)
            member = FederationMember(kit)
            if task_name == OFFER:
                found: dict[str, Any] = self._answer_offer(member, shareable)
            elif task_name == SUM:
                found = self._answer_sum(shareable)
            else:
                found = self._answer_call(member, kit, shareable, abort_signal)
        except Exception as error:  # model code is behind it
            self.logger.error(f"{task_name}: {type(error).__name__}: {error}")  # noqa: TRY400  # no traceback: model code wrote it
            found = refused_payload(_reason_of(error))
        return Shareable(found)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """End the local gang with the job."""
        del fl_ctx
        if event_type in (EventType.ABORT_TASK, EventType.END_RUN) and self._gang is not None:
            self._gang.close()

    def _answer_call(self, member: FederationMember, kit: Kit, payload: Shareable, stop: Signal) -> dict[str, Any]:
        """Pay, then train: nothing runs before the ledger is on the disk."""
        offer = read_offer(bytes_of(payload, "offer"), str(payload.get("signature", "")))
        call = read_call(payload)
        code = member.code(offer)
        before = member.begin_training(offer) - 1 if call.trains else member.trainings(offer)
        if self._gang is None or self._offer != offer:
            if self._gang is not None:
                self._gang.close()
            settings = member.settings()
            data = Path(settings.data)
            self._sums = MemberSums(kit, offer, least=settings.least_sum) if offer.terms.table.secure_sum else None
            self._offer, self._gang = offer, LocalGang(offer.terms.plan, code, data, name=kit.name)
        found = self._gang.ask(call, trainings=max(0, before), is_stopped=lambda: stop.triggered)
        answer = found.contributions[0]
        if self._sums is None:
            return answer_payload(call, answer, spent=found.spent)
        return key_payload(self._sums.begin(call, answer), answer.metrics)

    def _answer_sum(self, payload: Shareable) -> dict[str, Any]:
        if self._sums is None:
            raise IntegrityError("wanted a sum that was begun, found none")
        return masked_payload(self._sums.mask(*read_sum(payload)))

    def _answer_offer(self, member: FederationMember, payload: Shareable) -> dict[str, Any]:
        data, layer = bytes_of(payload, "offer"), bytes_of(payload, "layer") if "layer" in payload else None
        try:
            answer = member.answer(data, str(payload.get("signature", "")), layer)
        except GanglineError as error:
            self.logger.error(f"{OFFER}: {type(error).__name__}: {error}")  # noqa: TRY400  # no traceback: model code wrote it
            reason: RefusedReason = "data" if isinstance(error, ConfigError) else "error"
            answer = OfferAnswer(state="refused", reason=reason, message="the log of this member says why")
        return {"answer": answer.to_json()}


def _reason_of(error: Exception) -> RefusedReason:
    if isinstance(error, GateError):
        return "budget"
    if isinstance(error, IntegrityError):
        return "code"
    if isinstance(error, CapacityError):
        return "lost"
    return "error"

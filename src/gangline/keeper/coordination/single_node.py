"""Coordinator of a gang with one node: the keeper decides alone."""

from collections.abc import Sequence

from gangline.keeper.coordination.generations import GenerationController
from gangline.keeper.coordination.protocol import GenerationStart
from gangline.keeper.coordination.reports import NodeReport
from gangline.keeper.coordination.restart_policy import RestartDecision, stopped_before_start
from gangline.keeper.ranks.generation_result import GenerationResult, Halt
from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.stop_request import StopRequest

_HERE = (0,)


class SingleNode:
    def __init__(self, course: GenerationController) -> None:
        self._course = course
        self._order: StopRequest | None = None

    @property
    def outcome(self) -> GenerationResult | None:
        return self._course.outcome

    def next(self, last: NodeReport | None) -> GenerationStart | RestartDecision:
        if last is not None:
            order, self._order = self._order, None
            verdict = self._course.judge([last], order=order)
            if not verdict.restart:
                return verdict
            self._course.go_on(verdict)
        if order := self._course.keeper.own_stop_request():
            return stopped_before_start(order, self._course.generation)
        return self._course.start(_HERE)

    def order(self, own: StopRequest | None) -> StopRequest | None:
        if own is not None or self._order is None:
            self._order = own or self._course.resize(_HERE)
        return self._order

    def halt(self) -> Halt | None:
        return None

    def failing(self, *, secondary: bool, hangs: bool) -> None:
        del secondary, hangs  # nobody to tell

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> GenerationStart | None:
        return self._course.replace(dead, oom_kills=oom_kills)

    def pump(self) -> None:
        return

    def handles(self) -> list[int]:
        return []

    def close(self, verdict: RestartDecision) -> None:
        del verdict  # nobody to tell

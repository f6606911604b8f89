"""The company of a gang of one node: nobody else is there, the keeper decides for itself."""

from collections.abc import Sequence

from gangline.train.exit_codes import RankExit
from gangline.train.outcome import Halt, Outcome
from gangline.train.peers.company import Start
from gangline.train.peers.course import Course
from gangline.train.peers.reports import Report
from gangline.train.stop import StopOrder
from gangline.train.verdict import Verdict, before_ranks

_HERE = (0,)


class Alone:
    def __init__(self, course: Course) -> None:
        self._course = course
        self._order: StopOrder | None = None

    @property
    def outcome(self) -> Outcome | None:
        return self._course.outcome

    def next(self, last: Report | None) -> Start | Verdict:
        if last is not None:
            order, self._order = self._order, None
            verdict = self._course.judge([last], order=order)
            if not verdict.restart:
                return verdict
            self._course.go_on(verdict)
        if order := self._course.keeper.own_order():
            return before_ranks(order, self._course.generation)
        return self._course.start(_HERE)

    def order(self, own: StopOrder | None) -> StopOrder | None:
        if own is not None or self._order is None:
            self._order = own or self._course.resize(_HERE)
        return self._order

    def halt(self) -> Halt | None:
        return None

    def failing(self, *, secondary: bool, hangs: bool) -> None:
        del secondary, hangs  # nobody to tell

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> Start | None:
        return self._course.replace(dead, oom_kills=oom_kills)

    def pump(self) -> None:
        return

    def handles(self) -> list[int]:
        return []

    def close(self, verdict: Verdict) -> None:
        del verdict  # nobody to tell

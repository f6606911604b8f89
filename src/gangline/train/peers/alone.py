"""The company of a gang of one node: nobody else is there, the keeper decides for itself."""

from gangline.train.outcome import Halt, Outcome
from gangline.train.peers.company import Start
from gangline.train.peers.course import Course
from gangline.train.peers.reports import Report
from gangline.train.stop import StopOrder
from gangline.train.verdict import Verdict, before_ranks


class Alone:
    def __init__(self, course: Course) -> None:
        self._course = course
        self._order: StopOrder | None = None

    @property
    def outcome(self) -> Outcome | None:
        return self._course.outcome

    def next(self, last: Report | None) -> Start | Verdict:
        if last is not None:
            verdict = self._course.judge([last], order=self._order)
            if not verdict.restart:
                return verdict
            self._course.go_on(verdict)
        if order := self._course.keeper.own_order():
            return before_ranks(order, self._course.generation)
        return self._course.start()

    def order(self, own: StopOrder | None) -> StopOrder | None:
        self._order = own
        return own

    def halt(self) -> Halt | None:
        return None

    def failing(self, *, secondary: bool, hangs: bool) -> None:
        del secondary, hangs  # nobody to tell

    def pump(self) -> None:
        return

    def handles(self) -> list[int]:
        return []

    def close(self, verdict: Verdict) -> None:
        del verdict  # nobody to tell

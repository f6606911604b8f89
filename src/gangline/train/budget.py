"""How many times a gang may start anew. Pure: times are given."""

from typing import Literal

EVENT_SECONDS = 1.0
"""Deaths so close to the first one are the same event."""
REFILL_SECONDS = 3600.0


class RestartBudget:
    """Counts events, not deaths; full again after a clean hour."""

    def __init__(self, max_events: int) -> None:
        self.max_events = max_events
        self.spent = 0
        self._event: float | None = None

    def charge(self, now: float) -> Literal["charged", "same event", "refused"]:
        """Ask for one more generation after a death at `now`."""
        if self._event is not None and now - self._event <= EVENT_SECONDS:
            return "same event"
        if self._event is not None and now - self._event > REFILL_SECONDS:
            self.spent = 0
        if self.spent >= self.max_events:
            return "refused"
        self.spent += 1
        self._event = now
        return "charged"

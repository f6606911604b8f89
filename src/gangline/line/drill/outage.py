"""A store that goes away, is full or slow for a while, and comes back by itself."""

import threading
import time

from gangline.launch.faults.gateway import Gateway
from gangline.launch.faults.proxy import FaultProxy
from gangline.launch.faults.rules import Rule

REFUSED_SHARE = 0.7
"""Of the time that a killed store is away nobody listens; then it answers 503, as a server does that starts."""
SLOW_SECONDS = 0.25
"""Added to every request to a slow store."""


class Outage:
    """At most one; ends at its time, or with `end`."""

    def __init__(self, gateway: Gateway, proxy: FaultProxy) -> None:
        self._gateway, self._proxy = gateway, proxy
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, name: str, *, seconds: float, below: str) -> float:
        """Strike by the drill's `name`, for `seconds`, keys `below` where only those are struck; when that was."""
        mono = time.monotonic()
        run = {"kill-store": self._kill, "slow-store": self._slow, "fill-disk": self._fill}[name]
        self._thread = threading.Thread(target=run, args=(seconds, below), name=name, daemon=True)
        self._thread.start()
        return mono

    def end(self) -> None:
        """Nothing stands before the store any more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _kill(self, seconds: float, below: str) -> None:
        del below
        self._proxy.shut()
        self._over.wait(REFUSED_SHARE * seconds)
        self._proxy.set_rules(Rule(action="answer", status=503, retry_after_seconds=1, probability=1.0))
        self._proxy.open()
        self._over.wait((1 - REFUSED_SHARE) * seconds)
        self._proxy.set_rules()

    def _slow(self, seconds: float, below: str) -> None:
        del below
        self._proxy.set_rules(Rule(action="delay", seconds=SLOW_SECONDS, probability=1.0))
        self._over.wait(seconds)
        self._proxy.set_rules()

    def _fill(self, seconds: float, below: str) -> None:
        self._gateway.fill(below)
        self._over.wait(seconds)
        self._gateway.fill(None)

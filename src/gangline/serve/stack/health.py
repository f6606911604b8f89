"""Whether a server answers: asked on loopback, past any proxy, without following it anywhere."""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_ONE_ANSWER_SECONDS = 2.0


def wait_ready(url: str, *, answers: tuple[int, ...], seconds: float, alive: Callable[[], bool]) -> bool:
    """Ask until one of `answers` comes; False after `seconds`, or once `alive` says no: then somebody else answered."""
    deadline = time.monotonic() + seconds
    while True:
        if status(url) in answers:
            return alive()
        if not alive() or time.monotonic() > deadline:
            return False
        time.sleep(0.1)


def status(url: str) -> int | None:
    """Status of the answer; None: nobody answered, or no HTTP."""
    try:
        with _OPENER.open(url, timeout=_ONE_ANSWER_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (OSError, http.client.HTTPException):
        return None

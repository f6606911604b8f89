"""Waiting that ends."""

import time
from collections.abc import Callable

from tests.cluster.rig.trouble import Trouble


def await_true(what: str, holds: Callable[[], bool], *, seconds: float, hint: str = "") -> None:
    """Raises `Trouble` that names `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Trouble(f"{what}: not ready after {seconds:.0f} s{hint}")
        time.sleep(0.1)

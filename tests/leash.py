"""Processes that a fork server starts for a test end with it, however it ends.

Each of them holds the pipe by whose end the server learns that the tests are gone: a signal at the server's death would
never come.
"""

import multiprocessing
import os
import signal
import threading


def end_with_tests() -> None:
    """This process is killed when the one that asked the server for it ends."""
    tests = multiprocessing.parent_process()
    assert tests is not None

    def wait() -> None:
        tests.join()
        os._exit(128 + signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()

"""A suite, and then what failed in it once more with nothing beside it: `python -m tests.twice -m "not slow"`.

Thousands of tests start gangs, servers and browsers on whatever cores there are, so now and then one is late because
of its neighbours. What fails twice fails. What passes the second time is named, so that it is mended and not forgotten.
"""

import subprocess
import sys

import pytest

MOST = 24  # more failures than this are not one slow neighbour: they are not tried again


class Failures:
    """Names of the tests that failed, those of workers that died among them."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.names:
            self.names.append(report.nodeid)


def main(arguments: list[str]) -> int:
    failures = Failures()
    ended = pytest.main(arguments, plugins=[failures])
    if ended != pytest.ExitCode.TESTS_FAILED or not 0 < len(failures.names) <= MOST:
        return int(ended)
    print(f"\nonce more, alone: {len(failures.names)} of the tests failed", flush=True)
    limits = [each for each in arguments if each.startswith("--timeout")]
    again = subprocess.run([sys.executable, "-m", "pytest", "-q", *limits, *failures.names], check=False).returncode
    if not again:
        print("unsteady, passed alone:", *failures.names, sep="\n  ", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

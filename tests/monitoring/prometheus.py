"""A real Prometheus on loopback, for as long as a test wants it: Debian's package, its data in a folder of the test."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.ports import free_port

PATIENCE_SECONDS = 60.0
Sample = dict[str, Any]


def program(name: str) -> str:
    """`prometheus` or `promtool`; the test is skipped where Debian's package is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; apt-get install prometheus brings it")
    return found


class Prometheus:
    """Scrapes `targets` every second and evaluates `rules`; answers queries until it is closed."""

    def __init__(
        self,
        folder: Path,
        targets: Sequence[str] | Mapping[str, Sequence[str]] = (),
        rules: Sequence[Path] = (),
        *,
        interval: str = "1s",
        scrape_configs: Sequence[Mapping[str, Any]] = (),
        options: Sequence[str] = (),
    ) -> None:
        """Starts at once; ready when this returns.

        Args:
            folder: For configuration, data and log.
            targets: `host:port`, or such by job name.
            rules: Rule files.
            interval: Of scrapes and evaluations.
            scrape_configs: More of them, as in prometheus.yml.
            options: More of the program's.
        """
        self.data = folder / "data"
        self.config = folder / "prometheus.yml"
        folder.mkdir(parents=True, exist_ok=True)
        jobs = targets if isinstance(targets, Mapping) else {"gangline": targets}
        configs = [{"job_name": job, "static_configs": [{"targets": list(each)}]} for job, each in jobs.items()]
        every = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval}
        document = {
            "global": every,
            "rule_files": [str(each.resolve()) for each in rules],
            "scrape_configs": [*configs, *scrape_configs],
        }
        self.config.write_text(yaml.safe_dump(document))
        self.url = f"http://127.0.0.1:{free_port()}"
        found = program("prometheus")  # skips where there is none, before a file is open
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [
                found, f"--config.file={self.config}", f"--storage.tsdb.path={self.data}",
                f"--web.listen-address={self.url.removeprefix('http://')}", "--web.enable-lifecycle",
                "--web.enable-admin-api", *options,
            ],
            stdout=self._log, stderr=self._log,
        )  # fmt: skip
        try:
            self._wait_until_ready(folder / "log")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Prometheus":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, expression: str, *, at: float | None = None) -> list[Sample]:
        """Instant vector: [{"metric": {...}, "value": [time, "text"]}]."""
        asked = {"query": expression} | ({"time": repr(at)} if at is not None else {})
        data = self._get("query", asked)
        if data["resultType"] == "scalar":
            return [{"metric": {}, "value": data["result"]}]
        return list(data["result"])

    def value(self, expression: str, *, at: float | None = None) -> float | None:
        """The one value of an expression; None where there is no sample."""
        found = self.query(expression, at=at)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def range(self, expression: str, *, start: float, end: float, step: float = 1.0) -> list[Sample]:
        """Matrix: [{"metric": {...}, "values": [[time, "text"], ...]}]."""
        asked = {"query": expression, "start": repr(start), "end": repr(end), "step": repr(step)}
        return list(self._get("query_range", asked)["result"])

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health and last error."""
        return [rule for group in self._get("rules", {})["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        return list(self._get("targets", {"state": "active"})["activeTargets"])

    def wait(self, expression: str, wanted: Callable[[list[Sample]], bool] = bool) -> list[Sample]:
        """Ask until the answer is as wanted (default: not empty)."""
        found: list[Sample] = []

        def answered() -> bool:
            found[:] = self.query(expression)
            return wanted(found)

        assert eventually(answered), f"{expression}: {found}"
        return found

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _wait_until_ready(self, log: Path) -> None:
        def ready() -> bool:
            assert self._process.poll() is None, log.read_text()[-2000:]
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                    return answer.status == 200
            except OSError:
                return False

        assert eventually(ready, pause=0.05), log.read_text()[-2000:]

    def _get(self, path: str, asked: Mapping[str, str]) -> dict[str, Any]:
        body = urllib.parse.urlencode(asked)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{body}", timeout=30) as answer:
                return dict(json.load(answer)["data"])
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{asked}: {error.read().decode()}") from error


def eventually(claim: Callable[[], bool], *, pause: float = 0.2, seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether `claim` comes true in time."""
    until = time.monotonic() + seconds
    while not claim():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
    return True


def promtool(*arguments: object) -> str:
    """What it said; the test fails with it where promtool does."""
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr

"""Records what a Prometheus scrapes of two real runs and a service: `python -m tests.monitoring.recorded.record`.

A small classifier is trained as a base, then changed and trained again, so that there is a band to be judged on. The
file is OpenMetrics text, as `promtool tsdb create-blocks-from openmetrics` takes it in; the tests of the boards do.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.monitoring.exposed import Exposed, text_of
from tests.monitoring.prometheus import Prometheus

from gangline.line.record.runs import find_run
from gangline.metrics.catalogue import CATALOGUE
from gangline.serve.context.telemetry import Telemetry
from gangline.spec.config.load import load_site
from gangline.spec.record import Record
from gangline.storage.open import open_store

ROOT = Path(__file__).resolve().parents[3]
FILE = Path(__file__).parent / "two-runs.om.gz"
SCRAPE_SECONDS = 5
STEPS = 600
"""Enough to be scraped in the middle of it."""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repo, site = prepare(folder)
        service = Telemetry(projects=["digits"], forges=["ours"])
        began = time.time()
        with Exposed(text_of(service.book)) as exposed, watching(folder, exposed.address) as server:
            for width, seconds in ((32, 0.004), (24, 0.011)):
                commit(repo, f"digits: width {width}", width)
                record = run(repo, site)
                serve(service, record, seconds)
                exposed.text = text_of(service.book)
                time.sleep(3 * SCRAPE_SECONDS)
            write(FILE, rows(server, began, time.time()))


def prepare(folder: Path) -> tuple[Path, Path]:
    """A repository without a commit, and a site whose series Prometheus finds."""
    repo, site = folder / "digits", folder / "site.toml"
    shutil.copytree(ROOT / "examples" / "digits", repo)
    site.write_text(
        f'store = {{ url = "file:{folder / "store"}" }}\n'
        f'metrics = {{ port_base = 29400, driver_port = 29390, targets = "{folder / "targets"}" }}\n'
    )
    line = repo / "line.toml"
    line.write_text(
        line.read_text().replace("steps = 400", f"steps = {STEPS}")
        + "[evaluate]\nseeds = 3\n[publish]\nsmoke = false\n"
    )
    git(repo, "init", "-q", "-b", "main")
    return repo, site


def watching(folder: Path, service: str) -> Prometheus:
    found = {
        "job_name": "gangline",
        "file_sd_configs": [{"files": [f"{folder}/targets/*.json"], "refresh_interval": "1s"}],
    }
    targets = {"gangline-serve": [service]}
    return Prometheus(folder / "prometheus", targets, interval=f"{SCRAPE_SECONDS}s", scrape_configs=[found])


def run(repo: Path, site: Path) -> Record:
    command = [sys.executable, "-m", "gangline", "run", str(repo), "--site", str(site), "--json"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    name = json.loads(done.stdout.splitlines()[0])["run"]
    return find_run(open_store(load_site(site, environ={}).store.url), name)


def serve(service: Telemetry, record: Record, seconds: float) -> None:
    """What the service says after the push that this run came from."""
    service.webhook("ours", "push", "accepted", seconds)
    service.forge_request("ours", "ok")
    service.orders({"done": 1}, 0.0)
    service.runs_active({"digits": 0})
    service.leases_overdue(0)
    service.store_request("get", "ok", seconds)
    service.store_request("compare_and_set", "conflict", seconds)
    service.conditional_writes(True)
    service.run_ended(record)


def commit(repo: Path, subject: str, width: int) -> None:
    line = repo / "line.toml"
    line.write_text(re.sub(r"width = \d+", f"width = {width}", line.read_text()))
    git(repo, "add", "-A")
    git(repo, "-c", "user.name=recorder", "-c", "user.email=recorder@example.org", "commit", "-q", "-m", subject)


def git(repo: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(repo), *words], check=True, capture_output=True)


def rows(server: Prometheus, start: float, end: float) -> Iterator[str]:
    """OpenMetrics text: family after family, each sample with the time of its scrape."""
    for series in CATALOGUE.values():
        family = series.name.removesuffix("_total") if series.kind == "counter" else series.name
        yield f"# TYPE {family} {series.kind}"
        found: dict[str, list[Any]] = defaultdict(list)
        for name in series.sample_names:
            for each in server.query(f"{name}[{end - start:.0f}s]", at=end):
                found[_labels(each["metric"], name)] = each["values"]
        for labels, values in sorted(found.items()):
            yield from (f"{labels} {value} {at}" for at, value in values)
    yield "# EOF"


def _labels(metric: dict[str, str], name: str) -> str:
    shown = {key: value for key, value in metric.items() if key not in ("__name__", "instance")}
    return name + "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(shown.items())) + "}"


def write(file: Path, lines: Iterator[str]) -> None:
    data = ("\n".join(lines) + "\n").encode()
    file.write_bytes(gzip.compress(data, 9, mtime=0))
    sys.stdout.write(f"{file}: {len(data)} bytes of text, {file.stat().st_size} packed\n")


if __name__ == "__main__":
    main()

"""One run of a small classifier, watched by a Prometheus from its first process to its last."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.monitoring.exposed import Exposed, text_of
from tests.monitoring.prometheus import Prometheus
from tests.monitoring.recorded.record import ROOT, commit, git, run
from tests.monitoring.sources import ALERTS, RULES

from gangline.serve.context.telemetry import Telemetry
from gangline.spec.record import Record

STEPS = 200
TRAINING_SECONDS = 12.0
"""At least; ranks are found and scraped every second."""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What the run wrote down, and what was scraped of it."""

    record: Record
    server: Prometheus
    began: float
    ended: float
    """When the command had returned: from here on nobody answers for ranks and driver."""
    repo: Path
    site: Path
    targets: Path

    @property
    def run(self) -> str:
        return self.record.run.id

    def largest(self, series: str, **labels: str) -> float | None:
        """Largest value while ranks and driver answered."""
        matchers = {"run": self.run, "job": "gangline"} | labels
        selector = ",".join(f"{name}={json.dumps(value)}" for name, value in matchers.items())
        span = f"{self.ended - self.began + 1:.0f}s"
        return self.server.value(f"max(max_over_time({series}{{{selector}}}[{span}]))", at=self.ended)


@contextmanager
def watched(folder: Path) -> Iterator[Watched]:
    """The run has ended, and a service tells its finals, as the block begins."""
    repo, site = prepare(folder)
    service = Telemetry(projects=["digits"], forges=["ours"])
    found = {
        "job_name": "gangline",
        "file_sd_configs": [{"files": [f"{folder}/targets/*.json"], "refresh_interval": "1s"}],
    }
    with (
        Exposed(text_of(service.book)) as exposed,
        Prometheus(
            folder / "server", {"service": [exposed.address]}, [*RULES, *ALERTS], scrape_configs=[found]
        ) as server,
    ):
        began = time.time()
        record = run(repo, site)
        ended = time.time()
        service.run_ended(record)
        exposed.text = text_of(service.book)
        server.wait(f'gangline_run_verdict{{run="{record.run.id}", job="service"}}')
        yield Watched(
            record=record, server=server, began=began, ended=ended, repo=repo, site=site, targets=folder / "targets"
        )


def prepare(folder: Path) -> tuple[Path, Path]:
    """A repository with one commit: the whole line but for a second plan; and a site that says where its series are."""
    repo, site = folder / "digits", folder / "site.toml"
    shutil.copytree(ROOT / "examples" / "digits", repo)
    line = (
        (repo / "line.toml")
        .read_text()
        .replace("steps = 400", f"steps = {STEPS}")
        .replace("limit = 0.9", "limit = 0.5")
        .replace('plan = "fsdp"', 'plan = "off"')
    )
    _outlive_scrapes(repo / "model.py")
    (repo / "line.toml").write_text(line + "[publish]\nsmoke = false\n")
    site.write_text(
        f'store = {{ url = "file:{folder / "store"}" }}\n'
        f'metrics = {{ driver_port = 9390, port_base = 9480, targets = "{folder / "targets"}" }}\n'
    )
    git(repo, "init", "-q", "-b", "main")
    commit(repo, "a classifier of digits", 32)
    return repo, site


def _outlive_scrapes(model: Path) -> None:
    """Let the steps last for several scrapes, however fast the machine is."""
    text, digits = model.read_text(), '        digits = batch["digits"]\n'
    loss, evaluate = text.split("    def evaluate", 1)
    assert loss.count(digits) == 1
    pause = f"{digits}        time.sleep({TRAINING_SECONDS / STEPS} if torch.is_grad_enabled() else 0)\n"
    model.write_text("import time\n" + loss.replace(digits, pause) + "    def evaluate" + evaluate)

"""The recorded runs in a real Prometheus, and the moments at which a board may be looked at."""

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.monitoring.prometheus import Prometheus, promtool
from tests.monitoring.recorded.record import FILE, SCRAPE_SECONDS

DEVICES = {
    "run_gpu:gangline_gpu_busy:ratio": ("run=RUN,Hostname=a,gpu=0,namespace=gangs,pod=g-0", 0.93),
    "run_gpu:gangline_gpu_memory_used_bytes": ("run=RUN,Hostname=a,gpu=0,namespace=gangs,pod=g-0", 6e10),
    "run_node:gangline_node_cpu_busy:ratio": ("run=RUN,node=a", 0.4),
    "kube_node_status_allocatable": ("node=a,resource=nvidia_com_gpu", 8.0),
}
"""What rules would say of a cluster's devices; the recorded machine has none. Labels and value."""


@dataclass(frozen=True)
class Recording:
    """What was recorded, answered by a Prometheus."""

    server: Prometheus
    start: float
    end: float
    """First and last sample."""
    run_changed: float
    """When the last run was made."""
    training: float
    """A moment in the middle of the last run's training."""
    values: Mapping[str, str]
    """What a Grafana would put in for its variables: the last run is chosen, the whole recording shown."""

    def names(self) -> set[str]:
        """Every series that has samples in the recording."""
        asked = (
            f'count by (__name__) (last_over_time({{__name__=~".*gangline_.+|kube_.+"}}[{self.end - self.start:.0f}s]))'
        )
        return {each["metric"]["__name__"] for each in self.server.query(asked, at=self.end)}


def load(folder: Path) -> Recording:
    """Blocks of the recorded text under a Prometheus that scrapes nothing."""
    text = gzip.decompress(FILE.read_bytes()).decode()
    (folder / "two-runs.om").write_text(text.removesuffix("# EOF\n") + _devices(text), "utf-8")
    promtool("tsdb", "create-blocks-from", "openmetrics", folder / "two-runs.om", folder / "prometheus" / "data")
    keep = "--storage.tsdb.retention.time=100y"
    ended = f"--query.lookback-delta={2 * SCRAPE_SECONDS - 1}s"  # the text has no marks where a series ended
    server = Prometheus(folder / "prometheus", options=[keep, ended])
    times = sorted({float(line.split()[-1]) for line in text.splitlines() if not line.startswith("#")})
    return _moments(server, times[0], times[-1])


def _devices(text: str) -> str:
    """Samples of `DEVICES` at every scrape of the last run."""
    stages = [line for line in text.splitlines() if line.startswith("gangline_run_waiting{")]
    run = re.findall(r'run="([^"]+)"', max(stages, key=lambda line: float(line.split()[-1])))[0]
    times = [line.split()[-1] for line in stages if run in line]
    lines = []
    for name, (labels, value) in DEVICES.items():
        shown = ",".join(f'{key}="{each}"' for key, each in (pair.split("=") for pair in labels.split(",")))
        lines += [f"# TYPE {name} gauge", *(f"{name}{{{shown.replace('RUN', run)}}} {value} {at}" for at in times)]
    return "\n".join([*lines, "# EOF", ""])


def _moments(server: Prometheus, start: float, end: float) -> Recording:
    seconds = int(end - start) + 1
    newest = f"topk(1, max by (run) (last_over_time(gangline_run_created_timestamp_seconds[{seconds}s])))"
    run_changed = server.query(newest, at=end)[0]
    run = run_changed["metric"]["run"]
    info = server.query(f'last_over_time(gangline_run_info{{run="{run}"}}[{seconds}s])', at=end)[0]["metric"]
    (steps,) = server.query(f'max by (run) (gangline_train_step{{run="{run}"}})[{seconds}s:{SCRAPE_SECONDS}s]', at=end)
    most = max(float(step) for _, step in steps["values"])
    moving = [at for at, step in steps["values"] if 0 < float(step) < most]
    values = {
        "run": run, "project": info["project"], "branch": info["branch"], "commit": info["commit"],
        "__range": f"{seconds}s", "__rate_interval": f"{4 * SCRAPE_SECONDS}s",
    }  # fmt: skip
    return Recording(server, start, end, float(run_changed["value"][1]), moving[len(moving) // 2], values)

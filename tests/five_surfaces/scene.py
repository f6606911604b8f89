"""One commit, pushed to a real Gitea: a real service trains it, a real Prometheus watches the service.

What is kept is what people see of it: texts and answers as they came over the wire, read from nothing of ours.
"""

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.five_surfaces.readers import (
    Seen,
    read_comment,
    read_html,
    read_junit,
    read_pipeline,
    read_prometheus,
    read_terminal,
)
from tests.forge.conftest import Place, make_place
from tests.forge.gitea import GiteaServer
from tests.forge.service import Service, served
from tests.line.repositories import git
from tests.monitoring.prometheus import Prometheus, eventually

from gangline.kfp.run_stage import write_outputs
from gangline.line.record.runs import list_runs
from gangline.spec.record import Record

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"
BRANCH, SUBJECT = "wider", "Twice as many features"
RUN_SECONDS = 600.0
"""Patience with one run, on a machine that others use, too."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A base run on main, the run of a pull request judged on its band, and who shows them."""

    place: Place
    service: Service
    server: Prometheus
    base: Record
    record: Record
    pull_request: int
    pushed: str
    """What git said to the push."""
    texts: dict[str, str] = field(default_factory=dict)
    """By surface: terminal, comment, junit, page, report."""
    metrics: dict[str, float]
    """What the pipeline's last component logs, as kfp keeps it."""
    words: str
    """The Markdown beside it."""

    def visit(self, path: str) -> str:
        """What the service answers to its administrator."""
        return _get(self.service, path)


def read_all(scene: Scene, metric: str) -> dict[str, Seen]:
    """What each surface says, by its reader."""
    texts = scene.texts
    return {
        "terminal": read_terminal(texts["terminal"], metric),
        "comment": read_comment(texts["comment"], metric),
        "junit": read_junit(texts["junit"], metric),
        "pipeline": read_pipeline(scene.metrics, scene.words, metric),
        "prometheus": read_prometheus(scene.server.query, scene.record.run.id, metric),
        "page": read_html(texts["page"], metric),
        "report": read_html(texts["report"], metric),
    }


@contextmanager
def played(folder: Path, gitea: GiteaServer, *, steps: int = 120) -> Iterator[Scene]:
    """Push, wait for both runs, read every surface; servers stay up while the block runs."""
    place = make_place(gitea, "digits")
    repo = _repository(folder / "digits", steps)
    with served(folder / "service", place, "http://127.0.0.1:1") as service, _watching(folder, service) as server:
        place.hook_to(service.hook_url)
        _push(place, repo, "main")
        base = _ended(service, git(repo, "rev-parse", "HEAD"))
        git(repo, "checkout", "--quiet", "-b", BRANCH)
        _commit(repo, SUBJECT, width=32)
        pushed = _push(place, repo, BRANCH)
        pull_request = place.open_pull(BRANCH)
        record = _ended(service, git(repo, "rev-parse", "HEAD"))
        server.wait(f'gangline_run_verdict{{run="{record.run.id}"}}')
        metrics, words = _pipeline(folder / "kfp", record, base)
        scene = Scene(
            place=place, service=service, server=server, base=base, record=record, pull_request=pull_request,
            pushed=pushed, metrics=metrics, words=words,
        )  # fmt: skip
        scene.texts.update(_texts(scene))
        yield scene


def _repository(folder: Path, steps: int) -> Path:
    """The example with its first commit: narrow, so that the second one has something to gain."""
    shutil.copytree(EXAMPLE, folder)
    line = folder / "line.toml"
    text = line.read_text().replace("steps = 400", f"steps = {steps}").replace("limit = 0.9\n", "")
    text = text.replace('plan = "fsdp"', 'plan = "off"')
    line.write_text(text + '[evaluate]\nseeds = 3\n[publish]\nbranches = ["release"]\n')
    git(folder, "init", "--quiet", "--initial-branch=main")
    _commit(folder, "Tell digits apart", width=16)
    return folder


def _commit(repo: Path, subject: str, *, width: int) -> None:
    line = repo / "line.toml"
    line.write_text(re.sub(r"width = \d+", f"width = {width}", line.read_text()))
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", subject)


def _push(place: Place, repo: Path, branch: str) -> str:
    """As a person at a terminal pushes; what git said."""
    url = place.gitea.push_url(place.repository, place.owner)
    command = ["git", "-C", str(repo), "push", url, branch]
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def _watching(folder: Path, service: Service) -> Prometheus:
    job = {
        "job_name": "gangline-serve",
        "authorization": {"credentials_file": str(service.token_file)},
        "static_configs": [{"targets": [service.url.removeprefix("http://")]}],
    }
    return Prometheus(folder / "prometheus", {}, scrape_configs=[job])


def _ended(service: Service, sha: str) -> Record:
    """The run of a commit, its report drawn."""
    found: list[Record] = []

    def over() -> bool:
        found[:] = list_runs(service.store, project="digits", commit=sha)
        report = found[0].stages.get("report") if found else None
        return report is not None and report.state == "done"

    assert eventually(over, seconds=RUN_SECONDS), service.log[-3000:]
    assert found[0].run.state == "ended"
    return found[0]


def _texts(scene: Scene) -> dict[str, str]:
    run = scene.record.run.id
    return {
        "terminal": _shown(scene.service, run),
        "comment": _comment(scene),
        "junit": scene.visit(f"/api/v1/runs/{run}/artifacts/junit"),
        "page": scene.visit(f"/runs/{run}"),
        "report": scene.visit(f"/runs/{run}/report"),
    }


def _shown(service: Service, run: str) -> str:
    site = service.folder / "site.toml"
    command = [sys.executable, "-m", "gangline", "show", run, "--site", str(site)]
    environ = os.environ | {"HOME": str(service.folder), "FORGE_TOKEN": "-", "HOOK_SECRET": "-"}
    done = subprocess.run(command, env=environ, cwd=service.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _comment(scene: Scene) -> str:
    """Its last word, read back from the forge."""
    found: list[str] = []

    def last_word() -> bool:
        found[:] = [each["body"] for each in scene.place.comments(scene.pull_request)]
        return len(found) == 1 and scene.record.run.id in found[0] and "open**" not in found[0]

    assert eventually(last_word), found
    return found[0]


def _get(service: Service, path: str) -> str:
    request = urllib.request.Request(service.url + path)
    request.add_header("Authorization", f"Bearer {service.token_file.read_text().strip()}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def _pipeline(folder: Path, record: Record, base: Record) -> tuple[dict[str, float], str]:
    """What the pipeline's last component writes for this run, through kfp's own artifacts."""
    from kfp import dsl

    folder.mkdir()
    metrics = dsl.Metrics(uri=str(folder / "metrics"))
    verdict = dsl.Markdown(uri=str(folder / "verdict"))
    write_outputs(record, base, {"metrics": metrics, "verdict": verdict})
    return dict(metrics.metadata), Path(verdict.path).read_text()

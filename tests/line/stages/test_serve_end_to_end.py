"""IN5: the whole line with a real server; a commit that answers 30 % slower is refused, and its pages say so."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gangline.errors import GateError, NotInstalledError
from gangline.line.gangs.infer_server import infer_python
from gangline.line.record.store import read_record
from gangline.line.results.serve_gate import MEMORY, P99, PER_SECOND
from gangline.registry.versions import version_numbers
from gangline.spec.config.site import Site
from gangline.storage.folder.store import FolderStore

pytestmark = [pytest.mark.tools, pytest.mark.slow, pytest.mark.timeout(900)]
EXAMPLE = Path(__file__).parents[3] / "examples/digits"
SLEEP = 0.03
LINE = """
[publish]
smoke = "serve"
[gate.serve]
worse_percent = 15
p99_ms = 60000
memory_bytes = 8e9
"""


@dataclass
class Repository:
    """A repository of digits whose forward sleeps, and its runs."""

    folder: Path
    environ: dict

    def run(self, sleep, *, code):
        """Commit a forward that sleeps so long, run it; the record."""
        text = (EXAMPLE / "model.py").read_text().replace("import torch\n", "import time\n\nimport torch\n", 1)
        late = f"Tensor) -> Tensor:\n        time.sleep({sleep})\n"
        (self.folder / "model.py").write_text(text.replace("Tensor) -> Tensor:\n", late, 1))
        for words in (("add", "-A"), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", f"sleeps {sleep}")):
            subprocess.run(["git", *words], cwd=self.folder, check=True)
        ran = self.gangline("run", code=code)
        return read_record(FolderStore(self.folder / ".gangline/store"), re.search(r"runs/digits/\w+/[\w-]+", ran)[0])

    def gangline(self, *words, code=0):
        ran = subprocess.run(
            [sys.executable, "-m", "gangline", *words], cwd=self.folder, env=self.environ, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture
def repository(tmp_path):
    try:
        python = infer_python(Site(), os.environ)
    except NotInstalledError as error:
        pytest.skip(f"needs the environment of make infer: {error}")
    folder = tmp_path / "digits"
    folder.mkdir()
    line = (EXAMPLE / "line.toml").read_text().replace("steps = 400", "steps = 20")
    line = line.replace("limit = 0.9", "limit = 0.01").replace('[prove]\nplan = "fsdp"\n', "")
    (folder / "line.toml").write_text(line + LINE)
    subprocess.run(["git", "init", "-qb", "main"], cwd=folder, check=True)
    environ = {**os.environ, "GANGLINE_INFER": str(python).removesuffix("/bin/python")}
    return Repository(folder, environ)


def test_a_commit_that_answers_30_percent_slower_is_refused_and_the_comment_says_so(repository):
    first = repository.run(SLEEP, code=0)
    assert {P99, PER_SECOND, MEMORY} <= first.metrics.keys()
    assert first.metrics[P99].value > 1000 * SLEEP
    assert first.metrics[PER_SECOND].value < 1 / SLEEP
    equal = repository.run(f"{SLEEP} + 0.0", code=0)
    gate = next(each for each in equal.gates if each.name == "serve")
    assert gate.verdict == "yes", gate
    assert equal.metrics[P99].base_band.origin == first.run.id
    slower = repository.run(1.3 * SLEEP, code=GateError.exit_code)
    gate = next(each for each in slower.gates if each.name == "serve")
    assert gate.verdict == "no"
    assert 1.15 < gate.evidence["ratio"] < 1.45
    said = re.search(r"its answers take \d+ % longer than the base's", gate.reason)[0]
    assert version_numbers(FolderStore(repository.folder / ".gangline/store"), "digits") == (1, 2)
    for form in ("markdown", "html"):
        assert said in repository.gangline("report", "--format", form, "--out", "-").replace("&#39;", "'"), form
    print(gate.reason, gate.evidence)

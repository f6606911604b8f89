"""The tests marked `gpu`: NCCL on one device, bf16 and fp16, pinned staging, flash attention, kernels in a profile.

In a rehearsal they train on CPUs, as far as each can. Bounds: none fails, none that could run is left out.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

from figures import Report
from shapes import Shapes

ROOT = Path(__file__).resolve().parents[3]


def names(_: Shapes) -> tuple[str, ...]:
    return "tests that failed", "tests left out", "tests that passed"


def run(report: Report, shapes: Shapes) -> None:
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py")) if marked(path)]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "pytest_timeout", "--tb=short"]
        environ = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "GANGLINE_TEST_DEVICE": shapes.device}
        subprocess.run([*command, f"--junitxml={results}", *files], cwd=ROOT, env=environ, check=False)
        cases = list(ET.parse(results).iter("testcase"))
    ended = {f"{each.get('classname')}::{each.get('name')}": how(each) for each in cases}
    report.tell("tests", ended)
    report.tell("seconds", {name: float(each.get("time", 0)) for name, each in zip(ended, cases, strict=True)})
    count = Counter(ended.values())
    report.add("tests that failed", count["failed"], at_most=0, source="every test marked gpu")
    report.add("tests left out", count["skipped"], at_most=0, source="every test marked gpu")
    report.add("tests that passed", count["passed"], at_least=len(ended) or 1, source="every test marked gpu")


def marked(path: Path) -> bool:
    return re.search(r"\b(mark\.gpu|on_gpu)\b", path.read_text()) is not None


def how(case: ET.Element) -> str:
    kinds = {each.tag for each in case}
    return "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"

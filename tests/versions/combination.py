"""One Python with one torch: a copy of this tree outside of it, its environment, and what is run there.

FOLDER/py3.12-torch2.11     sources as they are here, with a .venv of their own that stays
FOLDER/logs                 what each check said
FOLDER/cache                environments of locks, for all of them
FOLDER/gpu-kit              the kit for a CUDA machine, rehearsed in the pair that it is for
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gangline.spec.versions import PYTHONS, TORCHES

ROOT = Path(__file__).resolve().parents[2]
SUITE = (
    "tests/train/runtime/test_torch_compat.py",
    "tests/train/test_parity.py",
    "tests/train/parallel/test_data_parallel.py",
    "tests/train/parallel/test_tensor.py",
    "tests/train/parallel/pipeline/test_pipeline_parity.py",
)
"""A slice of the training suite: each strategy against one process, checkpoints, compression, deaths."""
KIT = ("3.12", "2.11")
"""Python and torch of the CUDA machine that `make gpu-kit` is for; its session is rehearsed on this one's processor."""
KIT_PART_SECONDS = 300
"""For each of its six parts."""
MOST_SECONDS = 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    name: str
    passed: bool
    seconds: float
    said: str
    """The end of what it printed, or what was counted."""


@dataclass(frozen=True, slots=True)
class Combination:
    python: str
    torch: str
    folder: Path

    @staticmethod
    def every(folder: Path) -> "list[Combination]":
        return [Combination(python, torch, folder) for torch in TORCHES for python in PYTHONS]

    @property
    def name(self) -> str:
        return f"{self.python}-{self.torch}"

    @property
    def of_lock(self) -> tuple[str, str]:
        """Another Python and another torch, which a commit's lock asks for while gangline runs in this one."""
        following = (PYTHONS.index(self.python) + 1) % len(PYTHONS), (TORCHES.index(self.torch) + 1) % len(TORCHES)
        return PYTHONS[following[0]], TORCHES[following[1]]

    @property
    def tree(self) -> Path:
        return self.folder / f"py{self.python}-torch{self.torch}"

    def log(self, check: str) -> Path:
        return self.folder / "logs" / f"{self.name}-{check}.log"

    def copy_sources(self) -> None:
        """As git sees them, changes included; the environment stays, runs and caches do not."""
        reported = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        self.tree.mkdir(parents=True, exist_ok=True)
        for old in self.tree.iterdir():
            if old.name != ".venv":
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
        for name in filter(None, reported.split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)

    def checks(self, pythons: dict[str, Path]) -> list[tuple[str, list[str]]]:
        """Name and command of each, in their order; the next is run whatever came of the one before, but for setup."""
        pytest = [".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        return [
            ("setup", ["make", "--no-print-directory", "setup-dev", f"PYTHON={pythons[self.python]}"]),
            ("demo", ["make", "--no-print-directory", "demo", f"PYTHON={pythons[self.python]}"]),
            ("lock", [*pytest, "-m", "versions", "tests/line/stages/test_locked_python.py"]),
            ("suite", [*pytest, "-m", "not slow and not gpu and not tools and not cluster", *SUITE]),
            *([("gpu kit", ["sh", "-c", self._rehearsal()])] if (self.python, self.torch) == KIT else []),
        ]

    def _rehearsal(self) -> str:
        """A kit as this checkout makes it, for the tree is none, and its session in the Python of the tree."""
        kit = str(self.folder / "gpu-kit")
        make = [sys.executable, str(ROOT / "benchmarks" / "gpu" / "kit.py"), kit]
        session = [str(self.tree / ".venv" / "bin" / "python"), "benchmarks/gpu/session.py", "--rehearse", "all"]
        session += ["--seconds", str(KIT_PART_SECONDS)]
        return f"{shlex.join(make)} && cd {shlex.quote(kit)} && {shlex.join(session)}"

    def run(self, name: str, command: list[str], pythons: dict[str, Path]) -> Check:
        began, log = time.monotonic(), self.log(name)
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as out:
            try:
                code = subprocess.run(
                    command, cwd=self.tree, env=self._environ(pythons), stdin=subprocess.DEVNULL, stdout=out,
                    stderr=subprocess.STDOUT, check=False, timeout=MOST_SECONDS,
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                code = None
        return Check(name=name, passed=code == 0, seconds=time.monotonic() - began, said=self._last(log, code))

    def _environ(self, pythons: dict[str, Path]) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
        path = [*(str(each.parent) for each in pythons.values()), own.get("PATH", "")]
        return own | {
            "PATH": os.pathsep.join(path), "TORCH_VERSION": self.torch, "OMP_NUM_THREADS": "1",
            "GANGLINE_CACHE": str(self.folder / "cache"), "GANGLINE_TEST_LOCKED": " ".join(self.of_lock),
        }  # fmt: skip

    def _last(self, log: Path, code: int | None) -> str:
        """What it said last; paths below the folder of all of them, since the record holds none of a machine."""
        if code is None:
            return f"over {MOST_SECONDS} s"
        lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        last = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", lines[-1]) if lines else ""
        return re.sub(r"\s+in [\d.]+s.*$", "", last.strip("= ")).replace(f"{self.folder}/", "")

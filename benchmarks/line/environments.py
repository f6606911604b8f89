"""An environment of a lock with 40 packages, made anew from uv's cache and found again, against plain uv.

The lock is cut out of `requirements/dev.txt`: the first 40 packages without torch and its libraries. Plain uv is
`uv venv` and `uv pip sync --compile-bytecode` of the same lock, in turn with ours; compiling is most of both. uv's
cache is warm after the first of each, which does not count. Bounds: 5 s for a new one, 0.3 s for one that is there.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.line.repositories import LINE, make_repository

from gangline.build.virtualenv import LockedCommit, Uv, environments_folder, find_or_make_environment
from gangline.build.virtualenv.installation import delete_folder
from gangline.git.repository import Repository
from gangline.spec.config.load import load_line_text
from gangline.spec.config.site import Site

ROUNDS = 5
PACKAGES = 40
NEW_SECONDS, CACHED_SECONDS = 5.0, 0.3
ROOT = Path(__file__).parents[2]
LEFT_OUT = re.compile(r"(torch|triton|cuda|nvidia|uv|gangline|blake3|stamina|prometheus)[=-]")


def forty() -> str:
    entries = re.findall(r"^\S+==.*\n(?:[ \t]+.*\n)*", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    return "".join([each for each in entries if not LEFT_OUT.match(each) and ";" not in each][:PACKAGES])


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def spent() -> float:
    """Processor seconds of this process and of all that it waited for."""
    uses = (resource.getrusage(kind) for kind in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as name:
        folder = Path(name)
        os.environ["GANGLINE_CACHE"] = str(folder / "cache")
        line = LINE + '[env]\nlock = "lock.txt"\n'
        repository = Repository.at(make_repository(folder / "repo", {"line.toml": line, "lock.txt": forty()}))
        read = load_line_text(line, file="line.toml")
        of = LockedCommit(repository=repository, tree=repository.tree("HEAD"), line=read, trust="own")

        def ours() -> None:
            find_or_make_environment(
                of, site=Site(), environ=os.environ, home=folder, with_s3=False, notify=lambda _: None
            )

        def afresh() -> float:
            for each in environments_folder(os.environ, folder).glob("*"):
                delete_folder(each) if each.is_dir() else None
            return timed(ours)

        def plain(*options: str) -> float:
            return timed(lambda: plain_uv(folder, *options))

        afresh(), plain()
        new, bare, compiled, cached, busy = [], [], [], [], []
        for _ in range(ROUNDS):
            before = spent()
            new.append(afresh())
            busy.append(spent() - before)
            cached.append(timed(ours))
            bare.append(plain())
            compiled.append(plain("--compile-bytecode"))
    result = {
        "packages": PACKAGES,
        "new_seconds": round(median(new), 3),
        "new_processor_seconds": round(median(busy), 3),
        "cached_seconds": round(median(cached), 4),
        "uv_seconds": round(median(bare), 3),
        "uv_compiled_seconds": round(median(compiled), 3),
        "ratio_to_uv_compiled": round(median(one / other for one, other in zip(new, compiled, strict=True)), 3),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(result, indent=1))
    out = Path(".gangline/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    (out / "environments.json").write_text(json.dumps(result) + "\n")
    return 0 if result["new_seconds"] <= NEW_SECONDS and result["cached_seconds"] <= CACHED_SECONDS else 1


def plain_uv(folder: Path, *options: str) -> None:
    uv, venv = Uv.find(os.environ), str(folder / "plain")
    lock = str(folder / "repo" / "lock.txt")
    sync = (
        "pip",
        "sync",
        "--quiet",
        "--python",
        f"{venv}/bin/python",
        "--require-hashes",
        "--no-build",
        *options,
        lock,
    )
    for words in (("venv", "--quiet", "--clear", "--no-project", "--python", sys.executable, venv), sync):
        subprocess.run([uv.program, *words], env=dict(uv.environ), cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(main())

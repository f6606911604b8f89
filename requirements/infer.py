"""Make the environment of `gangline infer` from the hashed lock beside this file, outside the tree: `make infer`.

KServe's server wants an older psutil than other extras of gangline, so it has an environment of its own. The stamp is
written last, so an interrupted call is repeated. `GANGLINE_INFER` names another folder than `~/.cache/gangline/infer`.
"""

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK = HERE / "infer.txt"
UV = HERE.parent / ".venv" / "bin" / "uv"


def main() -> int:
    """Make the environment unless it is there; the exit code."""
    place = infer_folder()
    python, stamp = place / "bin" / "python", place / "installed"
    digest = sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == digest:
        print(f"infer  is there: {python}")
        return 0
    print(
        "infer  installing KServe's server and torch from requirements/infer.txt, some minutes the first time",
        flush=True,
    )
    shutil.rmtree(place, ignore_errors=True)
    for command in (
        [UV, "venv", "--quiet", "--python", sys.executable, place],
        [
            UV,
            "pip",
            "install",
            "--quiet",
            "--compile-bytecode",
            "--python",
            python,
            "--require-hashes",
            "--no-deps",
            "-r",
            LOCK,
        ],
    ):
        ended = subprocess.run(command, check=False)
        if ended.returncode:
            sys.stderr.write(
                "infer  the environment was not made; run make infer again, it goes on from what was downloaded\n"
            )
            return 30
    stamp.write_text(digest)
    print(f"infer  ready: {python}")
    return 0


def infer_folder() -> Path:
    """Folder of the environment; `gangline infer` and its tests look there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("GANGLINE_INFER") or cache / "gangline" / "infer")


if __name__ == "__main__":
    sys.exit(main())

"""One folder for a CUDA machine without network: this source, and wheels of what such a machine lacks.

    python benchmarks/gpu/kit.py [FOLDER]        build/gpu-kit by default

The machine has Python 3.12, torch with CUDA and numpy. All else that the runtime and its tests import comes along in
the versions of the lock, checked by its hashes. Compiled ones (blake3 hashes blocks, cryptography signs, cffi and
safetensors) are wheels for Linux on x86-64, for nothing can be built there. Bound: the folder takes at most 60 MiB.
"""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 60 * 2**20
PYTHON = "3.12"
PLATFORMS = tuple(f"manylinux{tag}_x86_64" for tag in ("2014", "_2_17", "_2_24", "_2_27", "_2_28", "_2_34"))
SOURCE = ("src", "benchmarks", "examples", "tests", "tools", "pyproject.toml", "LICENSE")
RUNTIME = ("blake3", "cattrs", "cryptography", "packaging", "prometheus-client", "stamina", "structlog")
TESTS = ("hypothesis", "pytest", "pytest-timeout", "safetensors", "urllib3")
THERE = frozenset({"torch", "numpy"})
"""Never carried: wheels of torch are larger than the kit may be, and numpy is built for the one that is there."""


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else ROOT / "build" / "gpu-kit"
    size = make(folder)
    print(f"gpu-kit   {folder}: {size / 2**20:.1f} MiB of at most {MOST_BYTES / 2**20:.0f}")
    print(f"gpu-kit   there: python3 benchmarks/gpu/session.py all, or one of {', '.join(parts())}")
    return 0 if size <= MOST_BYTES else 1


def make(folder: Path) -> int:
    """A kit at `folder`, where nothing is left of an earlier one; its bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in tracked():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, folder / path)
    names = sorted(set(closure(*RUNTIME, *TESTS)))
    fetch(names, folder / "wheels")
    wheels = sorted(path.name for path in (folder / "wheels").iterdir())
    reported = {"commit": git("rev-parse", "HEAD").strip(), "changed": bool(git("status", "--porcelain")),
            "python": PYTHON, "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "wheels": wheels}  # fmt: skip
    (folder / "kit.json").write_text(json.dumps(reported, indent=1) + "\n")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def tracked() -> list[str]:
    """Files that git would commit, deleted ones left out."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *SOURCE).split("\0")
    return [path for path in listed if path and (ROOT / path).is_file() and not (ROOT / path).is_symlink()]


def closure(*names: str) -> Iterator[str]:
    """`names` and all that they ask for on that machine, but what is there."""
    seen: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    target = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0", "extra": ""}
    while waiting:
        name = waiting.pop()
        if name in seen or name in THERE:
            continue
        seen.add(name)
        asked = [Requirement(text) for text in requires(name) or ()]
        waiting += [canonicalize_name(each.name) for each in asked if not each.marker or each.marker.evaluate(target)]
        yield name


def fetch(names: list[str], folder: Path) -> None:
    """Wheels of `names` in the versions of the lock, by its hashes."""
    lock = re.findall(r"^\S+==.*\n(?:[ \t]+.*\n)*", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    entries = {each.partition("==")[0]: each for each in lock}
    if missing := [name for name in names if name not in entries]:
        raise SystemExit(f"gpu-kit   wanted {', '.join(missing)} in requirements/dev.txt; run `make lock`")
    folder.mkdir()
    asked = folder / "asked.txt"
    asked.write_text("".join(entries[name] for name in names))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
    command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([*command, "--dest", str(folder), "--requirement", str(asked)], check=True)
    asked.unlink()


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def parts() -> list[str]:
    return sorted(path.stem for path in (Path(__file__).parent / "parts").glob("[a-z]*.py"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`make demo`: one commit of a small GPT, which learns gangline's own sources, goes through the whole line.

Its git repository is made in .gangline/demo/bytegpt. Equal sources give an equal commit, whose run is not repeated.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HOLDOUT = 0.005
"""Of 5 MB of text. Four evaluations of a fiftieth take the processors as long as all the steps."""
ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / ".gangline" / "demo" / "bytegpt"
WHO = {"GIT_AUTHOR_NAME": "demo", "GIT_AUTHOR_EMAIL": "demo@localhost", "GIT_AUTHOR_DATE": "2026-01-01T00:00:00+00:00"}
ENVIRONMENT = {**os.environ, **WHO, **{key.replace("AUTHOR", "COMMITTER"): value for key, value in WHO.items()}}


def main() -> None:
    DEMO.mkdir(parents=True, exist_ok=True)
    if not (DEMO / ".git").exists():
        git("init", "--quiet", "--initial-branch=main")
    for old in DEMO.iterdir():
        if old.name not in {".git", ".gangline"}:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    skip = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(ROOT / "examples" / "bytegpt", DEMO, dirs_exist_ok=True, ignore=skip)
    shutil.copytree(ROOT / "src" / "gangline", DEMO / "src" / "gangline", ignore=skip)
    line = DEMO / "line.toml"
    line.write_text(line.read_text().replace("holdout = 0.02", f"holdout = {HOLDOUT}"))
    git("add", "--all")
    if subprocess.run(["git", "diff", "--cached", "--quiet"], cwd=DEMO, check=False).returncode:
        git("commit", "--quiet", "--message", "bytegpt: learn the sources of gangline")
    print(
        f"repository {DEMO.relative_to(ROOT)}; to go on in it: source .venv/bin/activate && cd {DEMO.relative_to(ROOT)}"
    )
    sys.stdout.flush()
    os.chdir(DEMO)
    gangline = Path(sys.executable).with_name("gangline")
    os.execv(gangline, [str(gangline), "run", *sys.argv[1:]])


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=DEMO, env=ENVIRONMENT, check=True)


if __name__ == "__main__":
    main()

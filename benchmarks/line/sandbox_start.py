"""Start of a sandbox: one module of gangline in it, against the same module as a plain process of this user.

    python -m benchmarks.line.sandbox_start [ROUNDS]

Both in turn, medians. The site names a secret file and a variable names another, so that their folders are hidden; the
view is computed in each round, as a driver does.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gangline.launch.sandbox.module_runner import ModuleJob
from gangline.line.gangs.sandbox import local_runner
from gangline.spec.config.site import ForgeTable, Site

MODULE = "gangline.errors"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("repo", "keys", "more"):
            (folder / each).mkdir()
            (folder / each / "token").touch()
        site = Site(forge={"ours": ForgeTable(kind="gitea", token=f"secret:file:{folder / 'keys' / 'token'}")})
        environ = {"HOME": str(folder), "DEPLOY_KEY": str(folder / "more" / "token")}
        runner = local_runner(folder / "repo", site=site, environ=environ)
        job = ModuleJob(module=MODULE, seconds=60, trust="own")
        assert runner.run(job).exit_code == 0  # the engine is tried once a process
        inside, plain = [], []
        for _ in range(rounds):
            began = time.perf_counter()
            assert runner.run(job).exit_code == 0
            inside.append(time.perf_counter() - began)
            began = time.perf_counter()
            subprocess.run([sys.executable, "-m", MODULE], check=True, env={**os.environ, "PYTHONHASHSEED": "0"})
            plain.append(time.perf_counter() - began)
    shown = {"in a sandbox": statistics.median(inside), "plain": statistics.median(plain)}
    print(
        " · ".join(f"{what} {seconds * 1000:.0f} ms" for what, seconds in shown.items()),
        f"· least {min(inside) * 1000:.0f} ms",
    )


if __name__ == "__main__":
    main()

"""Two services over one PostgreSQL, of which one is cut off while it drives; in a network of its own.

`python divided_services.py FOLDER WAY SEED` prints what came of it as JSON.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from tests.contracts.database.servers import postgres
from tests.faults.n.network import ROOT, bring_up, cut
from tests.serve.orders.yard import Yard

from gangline.serve.database.open import open_database

FAR, NEAR = "127.0.0.2", "127.0.0.1"
SERVICE = ROOT / "tests" / "faults" / "c" / "order_service.py"
DRIVE_SECONDS = 3.0
BRANCHES = 4


def url(address):
    return f"postgresql://gangline@{address}/postgres"


@contextmanager
def service(yard, home, address):
    (yard.folder / home).mkdir(exist_ok=True)
    if home != "home":
        (yard.folder / home / "store").symlink_to(yard.folder / "home" / "store")
    environ = {**os.environ, "STARTS": str(yard.starts_file), "DRIVE_SECONDS": str(DRIVE_SECONDS)}
    command = [sys.executable, str(SERVICE), str(yard.folder), home, url(address)]
    process = subprocess.Popen(command, env=environ, cwd=ROOT, stdout=sys.stderr)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main(folder, way, seed):
    bring_up()
    with postgres(addresses=(NEAR, FAR)) as socket:
        yard = Yard(folder, database=open_database(socket))
        commits = {f"b{n}": yard.push(branch=f"b{n}") for n in range(BRANCHES)}
        ordered = [yard.order(branch) for branch in commits]
        with service(yard, "home-far", FAR):
            yard.wait(ordered[0], "driving")
            time.sleep(random.Random(seed).uniform(0.0, DRIVE_SECONDS))
            with cut(way, FAR, 5432), service(yard, "home-near", NEAR):
                done = [yard.wait(each) for each in ordered]
            healed = time.monotonic()
            branch = f"b{BRANCHES}"
            commits[branch] = yard.push(branch=branch)
            done.append(yard.wait(yard.order(branch)))
            alive = time.monotonic() - healed - DRIVE_SECONDS
        reported = {
            "commits": commits == {each.branch: each.commit for each in done},
            "runs": sorted(each.run for each in done) == sorted(each.run.id for each in yard.records()),
            "verdicts": sorted({each.run.verdict for each in yard.records()}),
            "drivers_of_a_run": sorted(set(Counter(run for run, _ in yard.starts()).values())),
            "alive_seconds": round(alive, 1),
        }
        yard.close()
    print(json.dumps(reported))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))

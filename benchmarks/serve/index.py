"""L3: pages and look-ups of an index of 100,000 runs of 50 projects, on SQLite or on PostgreSQL (`--postgres`).

Bounds: page p99 <= 50 ms, look-up p99 <= 10 ms. Beside them the same at 1,000 runs: the ratio says whether time grows
with what is stored.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.contracts.database.servers import postgres
from tests.faults.l.many_runs import fill, pages, rows, searches

from gangline.serve.database.open import open_database

PAGE_SECONDS, LOOK_UP_SECONDS = 0.050, 0.010
ROUNDS = 100
FEW = 1000


def asked(stored):
    return [*pages(stored), *searches()]


def measure(database, stored):
    """p99 by what was asked."""
    found = {what: p99(lambda wanted=wanted: database.runs.search(wanted)) for what, wanted in asked(stored)}
    names = iter(random.Random(2).choices(stored, k=ROUNDS))
    found["look-up"] = p99(lambda: database.runs.get(next(names).run))
    return found


def p99(ask):
    """(seconds, processor seconds of this thread), each its own 99th percentile."""
    took, used = [], []
    for _ in range(ROUNDS):
        began, busy = time.perf_counter(), time.thread_time()
        ask()
        took.append(time.perf_counter() - began)
        used.append(time.thread_time() - busy)
    place = int(0.99 * (ROUNDS - 1))
    return sorted(took)[place], sorted(used)[place]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--postgres", action="store_true")
    asked = parser.parse_args()
    print(f"cores {os.cpu_count()}, load before {os.getloadavg()[0]:.1f}")
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres(durable=True) if asked.postgres else nullcontext(f"{folder}/index.db") as url,
    ):
        sys.exit(0 if report(open_database(url), list(rows(asked.runs))) else 1)


def report(database, stored):
    fill(database, stored[:FEW])
    few = measure(database, stored[:FEW])
    began = time.perf_counter()
    fill(database, stored[FEW:])
    print(f"{len(stored)} rows, {(time.perf_counter() - began) / (len(stored) - FEW) * 1e6:.0f} us each to write")
    many = measure(database, stored)
    for what, (seconds, used) in many.items():
        print(f"{what:<24} p99 {seconds * 1e3:7.2f} ms, processor {used * 1e3:6.2f} ms", end="")
        print(f"   at {FEW} runs {few[what][0] * 1e3:6.2f} ms, {few[what][1] * 1e3:6.2f} ms")
    database.close()
    bounds = {what: LOOK_UP_SECONDS if what.startswith("look-up") else PAGE_SECONDS for what in many}
    return all(seconds <= bounds[what] for what, (seconds, _) in many.items())


if __name__ == "__main__":
    main()

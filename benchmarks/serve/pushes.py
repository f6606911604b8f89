"""L1: 1,000 pushes in 10 s, each delivered three times in random order, against a service process of its own.

Acknowledgements are durable: SQLite with `synchronous=FULL`, or a PostgreSQL that waits for the disk (`--postgres`).
Bounds: p99 <= 250 ms, max <= 2 s, exactly one order a push.
"""

import argparse
import os
import resource
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.contracts.database.servers import postgres
from tests.faults.l.intake import intake
from tests.faults.l.sender import send, shuffled

P99_SECONDS, MAX_SECONDS = 0.25, 2.0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pushes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--postgres", action="store_true")
    asked = parser.parse_args()
    print(f"cores {os.cpu_count()}, load before {os.getloadavg()[0]:.1f}")
    with postgres(durable=True) if asked.postgres else nullcontext(None) as url:
        sys.exit(0 if measure(asked, url) else 1)


def measure(asked, url):
    deliveries = shuffled(asked.pushes, times=3, seed=1)
    with tempfile.TemporaryDirectory() as folder, intake(Path(folder), url) as service:
        sent = send(service.url, deliveries, seconds=asked.seconds)
        orders = len({each.branch for each in service.orders()}), len(service.orders())
    seconds = sorted(each.seconds for each in sent)
    p50, p99, worst = (seconds[int(share * (len(seconds) - 1))] for share in (0.5, 0.99, 1.0))
    refused = sum(each.status != 202 for each in sent)
    print(f"{'PostgreSQL' if url else 'SQLite'}: {len(sent)} deliveries in {asked.seconds:.0f} s, {refused} not 202")
    print(f"orders {orders[1]} of {orders[0]} branches, wanted {asked.pushes}")
    print(f"ack p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, max {worst * 1e3:.0f} ms")
    own, service = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    used = [each.ru_utime + each.ru_stime for each in (own, service)]
    print(f"load after {os.getloadavg()[0]:.1f}, processor seconds: sender {used[0]:.1f}, service {used[1]:.1f}")
    return not refused and orders == (asked.pushes, asked.pushes) and p99 <= P99_SECONDS and worst <= MAX_SECONDS


if __name__ == "__main__":
    main()

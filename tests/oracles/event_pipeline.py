"""Micro-groups in flight, second by second over a queue of events: what `run_pipeline` says in three lines."""

import heapq
from collections.abc import Sequence


def makespan(groups: Sequence[tuple[float, Sequence[float], float]]) -> float:
    """Gather, compute of each host, and scatter of every group; the end of the last scatter."""
    stream = [("gather", 0)]
    for at in range(len(groups)):
        stream += [("gather", at + 1)] if at + 1 < len(groups) else []
        stream.append(("scatter", at))
    hosts = len(groups[0][1])
    gathered, computed, started = set(), set(), set()
    events, now, busy, running = [], 0.0, False, [None] * hosts
    following = [0] * hosts
    while stream or events:
        if not busy and stream:
            what, at = stream[0]
            if what == "gather" or all((at, host) in computed for host in range(hosts)):
                stream.pop(0)
                busy = True
                heapq.heappush(events, (now + groups[at][0 if what == "gather" else 2], what, at, -1))
        for host in range(hosts):
            at = following[host]
            if running[host] is None and at < len(groups) and at in gathered and (at, host) not in started:
                running[host] = at
                started.add((at, host))
                heapq.heappush(events, (now + groups[at][1][host], "compute", at, host))
        now, what, at, host = heapq.heappop(events)
        if what == "compute":
            computed.add((at, host))
            running[host] = None
            following[host] += 1
        else:
            busy = False
            if what == "gather":
                gathered.add(at)
    return now

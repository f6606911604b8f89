"""Processor seconds that a cluster's servers on this machine and this process spend while something is measured."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVERS = ("kube-apiserver", "etcd", "kube-controller", "kube-scheduler", "socat")
"""Names that the kernel gives them: 15 letters at most."""
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def counted(found: dict[str, float]) -> Iterator[None]:
    """Fill `found` with what each spent until the end of the block; none for servers on other machines."""
    begun = _spent()
    yield
    found |= {name: round(seconds - begun[name], 2) for name, seconds in _spent().items()}


def _spent() -> Counter[str]:
    spent: Counter[str] = Counter({"client": time.process_time()})
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it ended
        if name in SERVERS:
            fields = rest.split()  # from the state on, field 3 of proc(5)
            spent[name] += (int(fields[11]) + int(fields[12])) / TICKS
    return spent

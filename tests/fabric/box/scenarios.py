"""What happens in a fabric in a box, printed as JSON; run by `tests.fabric.box.test_box` in namespaces of its own."""

import json
import os
import random
import socket
import sys
import threading
import time
import traceback

from tests.fabric.box.network import FabricBox

from gangline.fabric.probe.client import Listeners
from gangline.fabric.probe.listener import Listener
from gangline.fabric.probe.telemetry import diagnose_probes

SECRET = b"a secret of some length"
PORT = 4719


def ring(order, size_bytes, megabits):
    """All-reduces over a ring of gloo in this order of hosts: seconds of one, and bytes over the uplinks of a group."""
    import torch  # once, before the ranks are forked
    import torch.distributed as dist

    box = FabricBox(groups=2, hosts=len(order) // 2, uplinks=1, megabits=megabits, policy="pinned")

    def rank(number):
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
        torch.set_num_threads(1)
        address = f"tcp://{box.address(order[0])}:29500"
        dist.init_process_group("gloo", init_method=address, rank=number, world_size=len(order))
        tensor = torch.ones(size_bytes // 4)
        dist.all_reduce(torch.ones(size_bytes // 40))  # connects, and opens windows of TCP
        dist.barrier()
        before = {group: box.sent_bytes(group) for group in box.groups} if number == 0 else {}
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        seconds = time.perf_counter() - start
        dist.barrier()
        sent = {group: [b - a for a, b in zip(before[group], box.sent_bytes(group), strict=True)] for group in before}
        assert tensor[0] == tensor[-1] == len(order)
        return {"seconds": seconds, "sent": sent}

    works = [box.start(host, lambda number=number: rank(number)) for number, host in enumerate(order)]
    found = [work.result() for work in works]
    return {"seconds": max(each["seconds"] for each in found), "sent": found[0]["sent"]}


def probes(failure, seconds, flows):
    """Hosts probe each other once something failed: what is named, and how long that took."""
    box = FabricBox(groups=3, hosts=2, uplinks=2, megabits=200)

    def listen():
        Listener(host="0.0.0.0", port=PORT, secret=SECRET)
        threading.Event().wait()

    listeners = [box.start(host, listen) for host in box.hosts]

    def ask():
        servers = Listeners({host: (box.address(host), PORT) for host in box.hosts}, SECRET)
        wait_for(servers)
        failures[failure]()
        start = time.monotonic()
        results = servers.probe_all(seconds=seconds, flows=flows)
        found = diagnose_probes(results, groups=box.group_of(), unreachable=servers.unreachable)
        took = time.monotonic() - start
        return {
            "seconds": took, "named": [[each.kind, list(each.names)] for each in found],
            "unreachable": sorted(servers.unreachable), "sent": sum(each.sent for each in results.values()),
        }  # fmt: skip

    failures = {
        "none": lambda: None,
        "host": lambda: box.cut_host("c0"),
        "group": lambda: box.cut_group("c"),
        "uplink": lambda: box.lose("c", 1, 100),
        "lossy": lambda: box.lose("c", 0, 10),
        "link": lambda: (box.lose("c", 0, 1), box.lose("c", 1, 1)),
    }
    found = box.start("a0", ask).result()
    for each in listeners:
        each.kill()
    return found


def wait_for(servers):
    """Until all listeners answer."""
    for address in servers.addresses.values():
        for _ in range(100):
            try:
                socket.create_connection(address, timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)


def hashed(policy, flows, uplinks, rounds):
    """Flows with ports of their own from group a to group b: how many the busiest uplink of a carries, by round."""
    box = FabricBox(groups=2, hosts=flows, uplinks=uplinks, megabits=1000, policy=policy)
    packets, size = 4, 1000

    def send(number):
        draw = random.Random(number)
        for at in range(flows):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as each:
                each.bind(("", draw.randrange(20_000, 60_000)))
                for _ in range(packets):
                    each.sendto(bytes(size), (box.address(f"b{at}"), 9))
        return

    busiest = []
    box.start("a0", lambda: send(-1)).result()  # neighbours are asked for once
    time.sleep(0.3)
    for number in range(rounds):
        before = box.sent_bytes("a")
        box.start("a0", lambda number=number: send(number)).result()
        time.sleep(0.01)
        sent = [after - each for each, after in zip(before, box.sent_bytes("a"), strict=True)]
        busiest.append(max(round(each / (packets * (size + 42))) for each in sent))
    return busiest


SCENARIOS = {each.__name__: each for each in (ring, probes, hashed)}

if __name__ == "__main__":
    try:
        print(json.dumps(SCENARIOS[sys.argv[1]](**json.loads(sys.argv[2]))))
    except Exception:
        traceback.print_exc()
        sys.exit(1)

"""L5: who holds connections or memory of the service and asks for nothing holds up no one, wherever that one is."""

import asyncio
import contextlib
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest
from tests.attacks.served import MIB, room_for_files, service
from tests.serve.deliveries import push, signed
from tests.serve.world import SECRETS, record_of, run_id
from tests.serve.world import world as made

from gangline.serve.web import slow_clients
from gangline.serve.web.connection_limits import IDLE_SECONDS, MAX_CONNECTIONS_PER_ADDRESS

pytestmark = [
    pytest.mark.row("L5", full="1,100 connections or 288 MiB of bodies, in each of five ways"),
    pytest.mark.long,
]
SELF, OTHER = "127.0.0.1", "127.0.0.2"
FLAT = 64 * MIB
"""More than this no attack may cost."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    room_for_files(4096)
    with service(tmp_path_factory.mktemp("service")) as found:
        yield found


@pytest.fixture
def still(tmp_path):
    with made(tmp_path) as found:
        yield found


def good_push(client, name):
    headers, body = signed(push(name, repository="team/beta"), kind="gitea", secret=SECRETS["HOOK_SECRET"])
    return client.post("/hooks/ours", content=body, headers=headers).status_code


def ask_for_everything(served, *, address, rounds=3, **headers):
    """Pages, API, hooks and an event stream; seconds that each request of `/healthz` took."""
    seconds = []
    for number in range(rounds):
        with served.client("alpha reader", address=address, **headers) as client:
            began = time.monotonic()
            assert client.get("/healthz").status_code == 200
            seconds.append(time.monotonic() - began)
            assert client.get("/runs").status_code == 200
            assert client.get("/api/v1/runs").status_code == 200
            assert good_push(client, f"b{number}-{time.monotonic_ns()}") == 202
            with client.stream("GET", f"/api/v1/runs/{run_id('alpha', 'open')}/events") as stream:
                assert next(line for line in stream.iter_lines() if line.startswith("event:")) == "event: record"
    return seconds


class Holding:
    """As many connections as there may be, each of which says some words and waits.

    Those that are closed are opened again, unless `again` is False.
    """

    def __init__(self, served, *, count, address, words=b"", again=True):
        self._served, self._count, self._address, self._words = served, count, address, words
        self._again = again
        self._thread = threading.Thread(target=lambda: asyncio.run(self._attack()))
        self._over = asyncio.Event()
        self.opened = 0

    def __enter__(self):
        self._thread.start()
        time.sleep(1.0)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _attack(self):
        self._loop = asyncio.get_running_loop()
        held = [asyncio.create_task(self._hold()) for _ in range(self._count)]
        await self._over.wait()
        for each in held:
            each.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    async def _hold(self):
        while self._again or not self.opened >= self._count:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._served.port, local_addr=(self._address, 0)
                )
                self.opened += 1
                try:
                    writer.write(self._words)
                    await writer.drain()
                    await reader.read()
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.5)


def post(length, *, path="/hooks/ours", kind="application/json", **headers):
    """The head of a request whose body has so many bytes."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", f"Content-Length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


LARGE = 24 * MIB
ATTACKS = {
    "connections that ask nothing": (1100, b""),
    "heads that do not end": (1100, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 12_000),
    "bodies that do not begin": (1100, post(1000)),
    "bodies that stop": (12, post(LARGE + 1) + b"x" * LARGE),
    "forms that stop": (1100, post(64_000, path="/login", kind="application/x-www-form-urlencoded") + b"x" * 63_000),
}


QUICK = ("connections that ask nothing", "bodies that stop")
SIZES = [pytest.param(each, marks=[] if each in QUICK else pytest.mark.slow) for each in ATTACKS]


@pytest.mark.parametrize("attack", SIZES)
def test_other_addresses_are_served_and_memory_stays_flat(served, attack):
    count, words = ATTACKS[attack]
    hold_and_ask(served, attack, count=count, address=OTHER, words=words)


@pytest.mark.parametrize("attack", SIZES)
def test_who_shares_the_address_is_served_too_where_connections_are_only_held(served, attack):
    count, words = ATTACKS[attack]
    hold_and_ask(served, attack, count=count, address=SELF, words=words, again=False)


def address_of(world):
    parts = urlsplit(world.url)
    return parts.hostname, parts.port


def hold_and_ask(served, attack, **how):
    ask_for_everything(served, address=SELF, rounds=1)
    before = served.rss_bytes()
    served.forget_peak()
    with Holding(served, **how) as holding:
        time.sleep(IDLE_SECONDS)
        seconds = ask_for_everything(served, address=SELF)
        assert holding.opened >= min(how["count"], MAX_CONNECTIONS_PER_ADDRESS)
    grown = served.peak_bytes() - before
    print(f"{attack}: +{grown / MIB:.0f} MiB, /healthz at most {max(seconds):.3f} s, {holding.opened} connections")
    assert grown < FLAT
    assert max(seconds) < 5.0  # on a machine that others use, too; alone it is a tenth


def test_large_bodies_that_end_are_judged_one_after_another(served):
    """Nobody signed them, and all of them are there at the same time."""
    ask_for_everything(served, address=SELF, rounds=1)
    before = served.rss_bytes()
    served.forget_peak()
    with Holding(served, count=12, address=OTHER, words=post(LARGE) + b"x" * LARGE, again=False):
        ask_for_everything(served, address=SELF)
    assert served.peak_bytes() - before < FLAT


def test_a_client_that_takes_no_answer_is_cut_off(monkeypatch, still):
    monkeypatch.setattr(slow_clients, "WRITE_SECONDS", 0.5)
    record = record_of(still.context, "alpha", "passed")
    large = b"x" * (32 * MIB)
    still.context.store.put(f"{record.prefix}/report.html", large)
    path = f"/api/v1/runs/{record.run.id}/artifacts/report"
    with still.serving(), socket.create_connection(address_of(still)) as greedy:
        token = still.tokens["alpha", "reader"]
        greedy.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        time.sleep(3.0)
        taken = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := greedy.recv(1 << 20):
                taken += len(piece)
        assert taken < len(large)
        with still.client(("alpha", "reader")) as client:
            assert len(client.get(path).content) == len(large)


def test_behind_a_proxy_each_of_those_behind_it_has_a_budget(tmp_path):
    """All connections come from one address; one of those behind it has as many requests under way as it can."""
    with service(tmp_path, "127.0.0.1") as served:
        words = post(1000, **{"X-Forwarded-For": "203.0.113.7"})
        with Holding(served, count=500, address=SELF, words=words) as holding:
            time.sleep(1.0)
            seconds = ask_for_everything(served, address=SELF, **{"X-Forwarded-For": "198.51.100.1"})
            with served.client(**{"X-Forwarded-For": "203.0.113.7"}) as theirs:
                codes = {theirs.get("/healthz").status_code for _ in range(20)}
            assert holding.opened >= 500
        assert 429 in codes
        assert max(seconds) < 5.0

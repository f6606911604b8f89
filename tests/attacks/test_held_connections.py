"""L5: who holds connections or memory of the service, silent or dripping, holds up no one, wherever that one is."""

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

from gangline.serve import server

pytestmark = [
    pytest.mark.row(
        "L5", full="1,100 to 3,000 connections of one, three and each its own address, or 288 MiB of bodies"
    ),
    pytest.mark.long,
]
SELF, OTHER = "127.0.0.1", "127.0.0.2"
FLAT = 128 * MIB
"""Most memory that an attack may cost."""


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
    """As many connections as there may be, each of which says some words and waits, or sends a letter every 0.5 s.

    Those that are closed are opened again after `again` seconds, never if it is None.
    """

    def __init__(self, served, *, count, address, words=b"", again=0.5, drips=False):
        self._served, self._count, self._words, self._again, self._drips = served, count, words, again, drips
        self._addresses = [address] if isinstance(address, str) else address
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
        held = [asyncio.create_task(self._hold(number)) for number in range(self._count)]
        await self._over.wait()
        for each in held:
            each.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    async def _hold(self, number):
        address = self._addresses[number % len(self._addresses)]
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._served.port, local_addr=(address, 0))
                self.opened += 1
                try:
                    writer.write(self._words)
                    await writer.drain()
                    await self._wait(reader, writer)
                finally:
                    writer.transport.abort()
            if self._again is None:
                return
            await asyncio.sleep(self._again)

    async def _wait(self, reader, writer):
        """Until the server closes the connection."""
        if not self._drips:
            await reader.read()
        while not reader.at_eof():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await reader.read()
            writer.write(b"x")
            await writer.drain()


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
    hold_and_ask(served, attack, count=count, address=SELF, words=words, again=None)


THREE = [f"127.0.0.{number}" for number in (2, 3, 4)]
EACH_ITS_OWN = [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(3000)]
"""Addresses of a client that has many: no address has more connections than an honest one."""
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "
DRIPPING = {
    "heads of three addresses": (1110, THREE, HEAD),
    "more heads of three addresses": (3000, THREE, HEAD),
    "heads of 3,000 addresses": (3000, EACH_ITS_OWN, HEAD),
    "bodies of three addresses": (1110, THREE, post(1000)),
    "bodies of 3,000 addresses": (3000, EACH_ITS_OWN, post(1000)),
    "bodies of 256 KiB, of three addresses": (1110, THREE, post(MIB) + b"x" * (256 << 10)),
}
SHORT = ("heads of three addresses", "bodies of 256 KiB, of three addresses")


@pytest.mark.timeout(1200)  # on a machine that others use, too
@pytest.mark.parametrize(
    "attack",
    [pytest.param(each, marks=[] if each in SHORT else pytest.mark.slow) for each in DRIPPING],
)
def test_dripping_clients_that_come_again_at_once_refuse_no_one(served, attack):
    """Each of 95 honest requests of `/healthz` is answered meanwhile, then everything else is."""
    count, addresses, words = DRIPPING[attack]
    ask_for_everything(served, address=SELF, rounds=1)
    before = served.rss_bytes()
    served.forget_peak()
    with Holding(served, count=count, address=addresses, words=words, again=0.02, drips=True) as holding:
        seconds = [answered_in(served) for _ in range(95)]
        ask_for_everything(served, address=SELF, rounds=1)
        assert holding.opened >= count
    grown = served.peak_bytes() - before
    print(f"{attack}: +{grown / MIB:.0f} MiB, /healthz at most {max(seconds):.3f} s, {holding.opened} connections")
    assert grown < FLAT


def answered_in(served):
    """Seconds that a request on a new connection takes, every 0.1 s."""
    time.sleep(0.1)
    began = time.monotonic()
    with served.client() as client:
        assert client.get("/healthz").status_code == 200
    return time.monotonic() - began


def address_of(world):
    parts = urlsplit(world.url)
    return parts.hostname, parts.port


def hold_and_ask(served, attack, **how):
    ask_for_everything(served, address=SELF, rounds=1)
    before = served.rss_bytes()
    served.forget_peak()
    with Holding(served, **how) as holding:
        time.sleep(2)
        seconds = ask_for_everything(served, address=SELF)
        assert holding.opened >= how["count"]
    grown = served.peak_bytes() - before
    print(f"{attack}: +{grown / MIB:.0f} MiB, /healthz at most {max(seconds):.3f} s, {holding.opened} connections")
    assert grown < FLAT
    assert max(seconds) < 5.0  # on a machine that others use, too; alone it is a tenth


def test_large_bodies_that_end_are_judged_one_after_another(served):
    """Nobody signed them, and all of them are there at the same time."""
    ask_for_everything(served, address=SELF, rounds=1)
    before = served.rss_bytes()
    served.forget_peak()
    with Holding(served, count=12, address=OTHER, words=post(LARGE) + b"x" * LARGE, again=None):
        ask_for_everything(served, address=SELF)
    assert served.peak_bytes() - before < FLAT


def test_a_client_that_takes_no_answer_is_cut_off(monkeypatch, still):
    monkeypatch.setattr(server, "WRITE_SECONDS", 0.5)
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

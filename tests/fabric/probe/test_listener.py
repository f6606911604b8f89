"""Listeners that probe each other over real sockets, with losses injected between them."""

import json
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from gangline.errors import CapacityError, UsageError
from gangline.fabric.probe import client, listener
from gangline.fabric.probe.client import Listeners, ask, send
from gangline.fabric.probe.listener import Listener, probe_targets, read_secret
from gangline.fabric.probe.packets import Echo, ProbeLog, parse_address, probe_packet, read_reply
from gangline.fabric.probe.telemetry import diagnose_probes

SECRET = b"a secret of some length"


@pytest.fixture
def listen():
    opened = []

    def start(secret=SECRET, **options):
        opened.append(Listener(secret=secret, **options))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


class LossyRelay:
    """Passes datagrams to `target` and back; a rule says which of each way are lost."""

    def __init__(self, target, *, there=lambda number: False, back=lambda number: False):
        self._target, self._rules = target, (there, back)
        self._front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._front.bind(("127.0.0.1", 0))
        self.address = self._front.getsockname()
        self._counts, self._behind, self._lock = [0, 0], {}, threading.Lock()
        threading.Thread(target=self._pump, args=(self._front, None), daemon=True).start()

    def _pump(self, source, sender):
        way = 0 if sender is None else 1
        with suppress(OSError):  # it was closed
            while True:
                data, peer = source.recvfrom(2048)
                with self._lock:
                    number, self._counts[way] = self._counts[way], self._counts[way] + 1
                if self._rules[way](number):
                    continue
                if way:
                    self._front.sendto(data, sender)
                else:
                    self._of(peer).send(data)

    def _of(self, peer):
        if peer not in self._behind:
            self._behind[peer] = behind = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            behind.connect(self._target)
            threading.Thread(target=self._pump, args=(behind, peer), daemon=True).start()
        return self._behind[peer]

    def close(self):
        for each in (self._front, *self._behind.values()):
            each.close()


@pytest.fixture
def relay():
    opened = []

    def start(*args, **options):
        opened.append(LossyRelay(*args, **options))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_healthy_path_is_clean_and_timed(listen):
    (found,) = probe_targets([listen().address], seconds=0.5, flows=4, per_second=100)
    assert (found.sent, found.lost, found.is_lossy) == (50, 0, False)
    assert 0 < found.median_seconds <= found.p99_seconds < 1
    assert found.clean_in_a_row == 50


def test_dead_listener_is_named_within_two_seconds():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    (found,) = probe_targets([address], seconds=5, flows=1)
    assert found.is_lossy
    assert found.loss == 1.0
    assert found.decided_seconds < 2
    assert (found.lost_there, found.lost_back, found.median_seconds) == (0, 0, None)


def test_losses_are_counted_by_their_way(listen, relay):
    draw = random.Random(4)
    lossy = relay(listen().address, there=lambda _: draw.random() < 0.1)
    (found,) = probe_targets([lossy.address], seconds=1.5, flows=2, per_second=200)
    assert found.is_lossy
    assert found.lost_there > 0
    assert found.lost_back == 0
    lossy = relay(listen().address, back=lambda number: number % 10 == 9)
    (found,) = probe_targets([lossy.address], seconds=1.5, flows=2, per_second=200)
    assert found.is_lossy
    assert found.lost_back > 0
    assert found.lost_there == 0


def test_one_lost_probe_is_not_a_lossy_path(listen, relay):
    lossy = relay(listen().address, there=lambda number: number == 20)
    (found,) = probe_targets([lossy.address], seconds=0.6, flows=4, per_second=100)
    assert (found.lost, found.lost_there, found.is_lossy) == (1, 1, False)
    assert found.flows_lossy == (0,)


def test_servers_probe_each_other_and_the_dead_one_is_named(listen, relay):
    addresses = {name: listen().address for name in "abc"} | {"d": listen().address}
    gone = Listener(secret=SECRET)
    gone.close()
    addresses["d"] = gone.address
    servers = Listeners(addresses, SECRET)
    found = diagnose_probes(
        servers.probe_all(seconds=1.0, flows=2), groups=dict.fromkeys("abcd", "g"), unreachable=servers.unreachable
    )
    assert [(each.kind, each.names, each.action.kind) for each in found] == [("sick_host", ("d",), "replace")]
    assert set(servers.unreachable) == {"d"}


def test_bytes_that_arrive_are_counted_over_the_time_that_they_take(listen):
    servers = Listeners({"a": listen().address, "b": listen().address}, SECRET)
    speeds = servers.bytes_per_second([("a", "b")], seconds=0.2)
    assert speeds[("a", "b")] > 1e7
    assert send(servers.addresses["b"], SECRET, seconds=0.1) > 1e7


def test_client_without_the_secret_gets_no_traffic(listen):
    address = listen().address
    for secret in (b"", b"another secret of that length"):
        with pytest.raises(UsageError, match="signed with this listener's secret"):
            ask(address, secret, {"do": "probe", "targets": ["127.0.0.1:1"], "seconds": 1, "flows": 1})
        with pytest.raises(UsageError, match="signed with this listener's secret"):
            send(address, secret, seconds=0.1)


def test_a_receiver_that_counts_for_long_is_waited_for(monkeypatch, listen):
    """Longer than a listener may take to take a connection."""
    received = listener._Request._receive

    def slowly(request):
        found = received(request)
        time.sleep(0.4)
        return found

    monkeypatch.setattr(client, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(listener._Request, "_receive", slowly)
    assert send(listen().address, SECRET, seconds=0.05) > 1e6


def test_signature_of_one_connection_is_none_for_the_next(listen):
    address = listen().address
    with socket.create_connection(address) as first, socket.create_connection(address) as second:
        nonce = first.makefile("rb").readline().strip()
        assert second.makefile("rb").readline().strip() != nonce


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"do": "format"}', b'{"do": "probe", "seconds": "x"}'])
def test_request_of_another_form_is_refused_and_the_listener_continues(listen, text):
    import hmac
    from hashlib import sha256

    address = listen().address
    with socket.create_connection(address) as connection:
        lines = connection.makefile("rb")
        nonce = lines.readline().strip()
        connection.sendall(hmac.new(SECRET, nonce + text, sha256).hexdigest().encode() + b" " + text + b"\n")
        assert json.loads(lines.readline())["exit"] == 2
    assert probe_targets([address], seconds=0.1, flows=1, per_second=20)[0].lost == 0


def test_listener_for_other_machines_wants_a_secret():
    with pytest.raises(UsageError, match="--secret-file"):
        Listener(host="0.0.0.0")


def test_port_in_use_is_refused(listen):
    with pytest.raises(UsageError, match="wanted to listen"):
        Listener(port=listen().address[1])


def test_no_one_there_is_said_with_what_to_start():
    with pytest.raises(CapacityError, match=r"python -m gangline\.fabric\.probe"):
        ask(("127.0.0.1", 1), b"", {})


def test_secret_is_read_from_a_file(tmp_path):
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    (tmp_path / "short").write_bytes(b"abc")
    assert (read_secret(None), read_secret(tmp_path / "secret")) == (b"", SECRET)
    for name in ("short", "missing"):
        with pytest.raises(UsageError, match="secret"):
            read_secret(tmp_path / name)


def test_program_listens_until_its_time_is_over():
    command = [sys.executable, "-m", "gangline.fabric.probe", "--port", "0", "--seconds", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        address = parse_address(said.removeprefix("listening on ").partition(",")[0])
        assert probe_targets([address], seconds=0.3, flows=1, per_second=20)[0].lost == 0
        process.terminate()


def test_echo_answers_probes_alone_and_with_no_more_than_it_got():
    echo = Echo()
    for number in range(3):
        packet = probe_packet(7, number)
        reply = echo.reply(packet)
        assert len(reply) == len(packet) == 128
        assert read_reply(reply, 7) == (number, number + 1)
        assert read_reply(reply, 8) is None
    assert echo.reply(b"x" * 128) is None
    assert echo.reply(packet[:60]) is None
    assert echo.reply(reply) is None
    assert read_reply(b"short", 7) is None


def test_late_reply_is_a_loss():
    log = ProbeLog("a:1", flows=1, timeout_seconds=1.0)
    log.sent += [0.0, 0.1]
    log.decide(1.05)
    log.replied(0, 1, 1.06)
    log.replied(1, 2, 1.07)
    log.decide(1.2)
    found = log.result()
    assert (found.sent, found.lost, found.lost_there, found.lost_back) == (2, 1, 0, 1)


@pytest.mark.parametrize(
    ("text", "address"),
    [("a1:5", ("a1", 5)), ("a1", ("a1", 4719)), ("[::1]:7", ("::1", 7)), ("[::1]", ("::1", 4719))],
)
def test_addresses(text, address):
    assert parse_address(text, port=4719) == address


@pytest.mark.parametrize("text", ["", ":5", "a:0", "a:70000", "a:b"])
def test_addresses_that_are_none_are_refused(text):
    with pytest.raises(UsageError, match="host:port"):
        parse_address(text, port=4719)

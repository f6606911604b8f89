"""Deliveries through the real adapters: what starts an order, what is refused, and what is answered."""

import asyncio
import json
import socket
import threading
import time
from http import HTTPStatus
from uuid import uuid4

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.serve.deliveries import REPOSITORY, pull_request, push, signed
from tests.serve.hook_service import hooks_app, service_context
from tests.serve.world import served

from gangline.errors import StorageError
from gangline.serve import webhooks
from gangline.serve.web import body_limits

ALL = ("queued", "driving", "parked", "done", "dropped", "quarantined")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """One server for all tests: its context and a client."""
    context = service_context(tmp_path_factory.mktemp("service"))
    with served(hooks_app(context)) as url, httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        yield context, client
    context.database.close()


@pytest.fixture
def context(service):
    """As if nothing had been delivered yet."""
    context, _ = service
    for table in ("deliveries", "orders"):
        context.database.orders._engine.write(lambda session, table=table: session.execute(f"DELETE FROM {table}"))
    return context


@pytest.fixture
def client(service, context):
    return service[1]


def orders(context):
    return context.database.orders.list(states=ALL, projects=None, limit=10_000)


def send(client, payload, *, forge="hub", **how):
    headers, body = signed(payload, **how)
    return client.post(f"/hooks/{forge}", content=body, headers=headers)


@pytest.mark.parametrize(("forge", "kind", "project"), [("hub", "github", "alpha"), ("tea", "gitea", "beta")])
def test_a_signed_push_is_one_order_to_look_at_its_ref(client, context, forge, kind, project):
    assert send(client, push("topic/one"), forge=forge, kind=kind).status_code == 202
    (order,) = orders(context)
    assert (order.project, order.forge, order.repository) == (project, forge, REPOSITORY)
    assert (order.ref, order.branch, order.commit, order.cause) == ("refs/heads/topic/one", "topic/one", None, "push")


def test_a_push_at_gitlab_is_one_too(client, context):
    payload = {
        "object_kind": "push", "ref": "refs/heads/main", "before": "0" * 40, "after": "1" * 40,
        "project": {"path_with_namespace": REPOSITORY},
    }  # fmt: skip
    assert send(client, payload, forge="lab", kind="gitlab").status_code == 202
    assert [each.project for each in orders(context)] == ["gamma"]


@pytest.mark.row("P5")
def test_a_forks_pull_request_is_marked_from_the_start(client, context):
    assert send(client, pull_request(fork=True), event="pull_request").status_code == 202
    (order,) = orders(context)
    assert (order.ref, order.pull_request, order.trust, order.cause) == (
        "refs/pull/7/head", 7, "fork", "pull_request",
    )  # fmt: skip


def test_a_branch_that_is_gone_is_looked_at_too(client, context):
    assert send(client, push(commit="0" * 40, deleted=True)).status_code == 202
    assert [each.ref for each in orders(context)] == ["refs/heads/main"]


@pytest.mark.row("P6")
def test_a_repeat_is_acknowledged_and_does_nothing(client, context):
    for _ in range(3):
        assert send(client, push(), delivery="one").status_code == 202
    assert send(client, push(), delivery="same body, new id").status_code == 202
    assert send(client, push("other"), delivery="one").status_code == 202
    assert len(orders(context)) == 1


@pytest.mark.row("P6")
@pytest.mark.parametrize(
    "change",
    [
        {"X-Hub-Signature-256": ""},
        {"X-Hub-Signature-256": "sha256="},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64},
        {"X-Hub-Signature-256": "\u00e9" * 64},
        {"X-Hub-Signature": "sha1=da39a3ee5e6b4b0d3255bfef95601890afd80709", "X-Hub-Signature-256": ""},
    ],
)
def test_without_the_secrets_signature_nothing_happens(client, context, change):
    headers, body = signed(push())
    headers = {name: value.encode("latin-1") for name, value in (headers | change).items()}
    answer = client.post("/hooks/hub", content=body, headers=headers)
    assert (answer.status_code, orders(context)) == (401, [])


@pytest.mark.row("P6")
def test_another_tenants_signature_opens_nothing(client, context):
    assert send(client, push(), forge="other").status_code == 401
    assert send(client, push(), secret="the other tenant's").status_code == 401
    assert orders(context) == []


def test_a_forge_without_a_secret_takes_nothing_in(client, context):
    answer = send(client, push(repository="no/secret"), forge="bare")
    assert (answer.status_code, orders(context)) == (503, [])
    assert "secret:" not in answer.text


def test_a_signed_push_of_a_repository_that_is_not_claimed_starts_nothing(client, context):
    assert send(client, push(repository="team/other")).status_code == 204
    assert orders(context) == []


def test_a_repository_is_known_in_any_case(client, context):
    assert send(client, push(repository="Team/Model")).status_code == 202
    assert [each.project for each in orders(context)] == ["alpha"]


@pytest.mark.parametrize(
    ("payload", "event"), [({"zen": "keep it simple"}, "ping"), (push(ref="refs/tags/v1"), "push"), ({}, "issues")]
)
def test_other_events_are_heard_and_left(client, context, payload, event):
    payload = {"repository": {"full_name": REPOSITORY}} | payload
    assert send(client, payload, event=event).status_code == 204
    assert orders(context) == []


@pytest.mark.row("F2")
@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (b"", 400), (b"[]", 400), (b"{", 400), (b'{"ref": 1}', 400), (b"\xff", 400), (b"[" * 100_000, 400),
        (push(ref="refs/heads/a b"), 204), (push(ref="refs/heads/\ud800"), 400), (push(ref="refs/heads/a..b"), 204),
    ],
)  # fmt: skip
def test_signed_nonsense_is_refused_in_a_sentence(client, context, payload, status):
    answer = send(client, payload)
    assert (answer.status_code, orders(context)) == (status, [])
    assert status == 204 or answer.json()["detail"]


def test_unknown_forges_and_media_types_are_distinguished(client):
    headers, body = signed(push())
    assert client.post("/hooks/nobody", content=body, headers=headers).status_code == 404
    form = headers | {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/hooks/hub", content=body, headers=form).status_code == 415
    assert client.get("/hooks/hub").status_code == 405


@pytest.mark.row("I3")
def test_nothing_is_acknowledged_that_could_not_be_kept(client, context, monkeypatch):
    def full(**_):
        raise StorageError("the disk is full")

    monkeypatch.setattr(context.database.deliveries, "take_in", full)
    answer = send(client, push())
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]


@pytest.mark.parametrize("length", [body_limits.MAX_BYTES + 1, "9" * 200])
def test_a_body_above_the_cap_is_refused_before_it_is_sent(client, length):
    with socket.create_connection((client.base_url.host, client.base_url.port)) as half:
        half.sendall(b"POST /hooks/hub HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        half.sendall(f"Content-Length: {length}\r\n\r\n".encode())
        assert half.recv(100).split()[1] in {b"413", b"400"}


def test_a_chunked_body_is_cut_at_the_cap(context, monkeypatch):
    monkeypatch.setattr(webhooks, "MAX_BYTES", 1 << 20)
    headers, _ = signed(push())

    def endless():
        for _ in range(64):
            yield b"x" * 65_536

    with served(hooks_app(context)) as url:
        answer = httpx.post(f"{url}/hooks/hub", content=endless(), headers=headers, trust_env=False, verify=False)
    assert answer.status_code == 413


def test_a_body_that_trickles_is_given_up(context, monkeypatch):
    monkeypatch.setattr(body_limits, "READ_SECONDS", 0.3)
    with served(hooks_app(context)) as url, socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as half:
        half.sendall(b"POST /hooks/hub HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        half.sendall(b"Content-Length: 1000\r\n\r\n{")
        began = time.monotonic()
        assert b"408" in half.recv(100)
    assert time.monotonic() - began < 5


def test_a_sender_that_goes_away_leaves_nothing(context):
    with served(hooks_app(context)) as url:
        with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as half:
            half.sendall(b"POST /hooks/hub HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            half.sendall(b"Content-Length: 1000\r\n\r\n{")
        headers, body = signed(push())
        assert (
            httpx.post(f"{url}/hooks/hub", content=body, headers=headers, trust_env=False, verify=False).status_code
            == 202
        )
    assert len(orders(context)) == 1


def test_who_sends_many_forged_deliveries_shuts_no_one_out(client, context, monkeypatch):
    headers, body = signed(push(), secret="guess")
    for _ in range(2 * webhooks.FORGED_BURST):  # some come again while these are sent
        assert client.post("/hooks/hub", content=body, headers=headers).status_code == 401
    large = client.post("/hooks/hub", content=b" " * (body_limits.MODEST_BYTES + 1), headers=headers)
    assert large.status_code == 413
    assert send(client, push()).status_code == 202


def test_every_answer_is_counted(client, context):
    send(client, push(), delivery="x")
    send(client, push(), delivery="x")
    send(client, push(), secret="guess")
    _, text = context.telemetry.render()
    for outcome in ("accepted", "repeated", "forged"):
        assert f'outcome="{outcome}"' in text.decode()


def test_racing_repeats_are_one_order(context):
    headers, body = signed(push(), delivery="x")
    with served(hooks_app(context)) as url:

        async def all_at_once():
            async with httpx.AsyncClient(trust_env=False) as sender:
                sent = [sender.post(f"{url}/hooks/hub", content=body, headers=headers) for _ in range(30)]
                return [each.status_code for each in await asyncio.gather(*sent)]

        assert set(asyncio.run(all_at_once())) == {202}
    assert len(orders(context)) == 1


flips = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=5)


@pytest.mark.row("F2")
@pytest.mark.row("P6")
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=flips)
def test_a_body_changed_after_it_was_signed_never_acts(client, context, changes):
    headers, body = signed(push(pusher={"name": str(uuid4())}))
    changed = bytearray(body)
    for place, value in changes:
        changed[place % len(changed)] = value
    before = len(orders(context))
    status = client.post("/hooks/hub", content=bytes(changed), headers=headers).status_code
    assert status == (202 if bytes(changed) == body else 401)
    assert len(orders(context)) == before + (status == 202)


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.row("F2")
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), event=st.sampled_from(["push", "pull_request", "delete", "ping"]), value=any_json)
def test_signed_payloads_with_any_value_anywhere_are_never_an_error_of_ours(client, data, event, value):
    payload = push() if event == "push" else pull_request()
    spoil(payload, data, value)
    assert send(client, json.dumps(payload).encode(), event=event).status_code in {202, 204, 400}


def spoil(payload, data, value):
    """Put `value` at a place of the payload."""
    here = payload
    while True:
        name = data.draw(st.sampled_from(sorted(here)))
        if isinstance(here[name], dict) and data.draw(st.booleans()):
            here = here[name]
        else:
            here[name] = value
            return


header_values = st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=300)


@pytest.mark.row("F2")
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=header_values)
def test_any_header_is_answered_with_what_the_sender_did_wrong(client, data, value):
    headers, body = signed(push())
    name = data.draw(st.sampled_from([*sorted(headers), "Content-Encoding", "Expect", "X-Forwarded-For"]))
    sent = {key: text.encode("latin-1") for key, text in (headers | {name: value}).items()}
    status = client.post("/hooks/hub", content=body, headers=sent).status_code
    assert status < HTTPStatus.INTERNAL_SERVER_ERROR


@pytest.mark.row("I3")
def test_deliveries_from_many_threads_are_all_kept(client, context):
    statuses = []

    def one(number):
        statuses.append(send(client, push(f"b{number}")).status_code)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert statuses == [202] * 20
    assert len(orders(context)) == 20

"""The gate: whose host, whose token, whose session, how much at once."""

import socket
import time
from hashlib import sha256
from urllib.parse import urlsplit

import httpx
import pytest
from tests.serve.world import PLENTY

from gangline.serve.web.rate_limits import RequestLimits
from gangline.serve.web.responses import DOCUMENT_POLICY, PAGE_POLICY


def log_in(world, client, who=("alpha", "runner")):
    answer = client.post("/login", data={"token": world.tokens[who]})
    assert answer.status_code == 303, answer.text
    return answer.headers["set-cookie"]


def csrf_in(text: str) -> str:
    return text.split('name="csrf" value="', 1)[1].split('"', 1)[0]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "169.254.169.254", "", "evil.example:8321"])
def test_page_that_points_its_own_name_at_our_address_is_refused(world, host):
    with world.client() as client:
        assert client.get("/api/v1/runs", headers={"Host": host}).status_code == 421
        assert client.get("/healthz", headers={"Host": "localhost:1"}).status_code == 200


@pytest.mark.parametrize("token", ["-", "gl_nobody", "gl_" + "x" * 500, "ключ", "\udcff"])
def test_token_that_no_one_has_is_refused_in_one_way(world, token):
    with world.client(None) as client:
        header = b"Bearer " + token.encode("utf-8", "surrogateescape")
        answer = client.get("/api/v1/runs", headers=[(b"Authorization", header)])
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert "gl_nobody" not in answer.text


def test_token_ends_when_it_is_revoked_and_its_sessions_with_it(world):
    token = world.tokens["alpha", "runner"]
    with world.client(("alpha", "runner")) as client, world.client(None) as browser, world.client() as admin:
        log_in(world, browser)
        assert client.get("/api/v1/runs").status_code == browser.get("/runs").status_code == 200
        beginning = sha256(token.encode()).hexdigest()[:8]
        assert admin.delete(f"/api/v1/tokens/{beginning}").status_code == 204
        assert client.get("/api/v1/runs").status_code == 401
        assert browser.get("/runs").headers["location"] == "/login?next=/runs"


def test_session_is_for_browsers_alone_and_not_for_other_sites(world):
    with world.client(None) as browser:
        cookie = log_in(world, browser)
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        run = world.run("alpha", "open")
        assert browser.get(f"/api/v1/runs/{run}").status_code == 200  # what live.js reads
        assert browser.post(f"/api/v1/runs/{run}/cancel").status_code == 401  # writing is for tokens
        assert browser.post(f"/runs/{run}/cancel", data={"reason": "x"}).status_code == 403  # no form of ours
        form = {"reason": "too wide", "csrf": csrf_in(browser.get(f"/runs/{run}").text)}
        foreign = browser.post(f"/runs/{run}/cancel", data=form, headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403
        assert browser.post(f"/runs/{run}/cancel", data=form).status_code == 303
        reason = browser.get(f"/api/v1/runs/{run}").json()["run"]["cancel_requested"]
        assert reason == "cancelled by runner of alpha: too wide"


def test_form_of_one_session_is_not_a_form_of_another(world):
    run = world.run("alpha", "open")
    with world.client(None) as one, world.client(None) as other:
        log_in(world, one)
        log_in(world, other, ("alpha", "maintainer"))
        form = {"csrf": csrf_in(one.get(f"/runs/{run}").text)}
        assert other.post(f"/runs/{run}/cancel", data=form).status_code == 403


@pytest.mark.parametrize(
    "change", [lambda c: c[:-1] + "0" if c[-1] != "0" else c[:-1] + "1", lambda c: "9" * 20 + c, lambda c: ""]
)
def test_cookie_that_was_changed_is_not_a_session(world, change):
    with world.client(None) as browser:
        log_in(world, browser)
        name = world.app.state.service.sessions.cookie
        value = change(browser.cookies[name])
        with world.client(None) as forged:
            forged.cookies.set(name, value)
            assert forged.get("/runs").status_code == 303


def test_link_logs_in_once(world):
    service = world.app.state.service
    digest = sha256(world.tokens["alpha", "reader"].encode()).hexdigest()
    code = service.links.make(digest)
    with world.client(None) as first, world.client(None) as second:
        assert (
            first.get("/login", params={"once": code, "next": "/runs?project=alpha"}).headers["location"]
            == "/runs?project=alpha"
        )
        assert first.get("/runs").status_code == 200
        assert second.get("/login", params={"once": code}).status_code == 401


@pytest.mark.parametrize(
    "onward", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/login"]
)
def test_login_leads_to_pages_of_ours_alone(world, onward):
    with world.client(None) as browser:
        answer = browser.post("/login", data={"token": world.tokens["alpha", "reader"], "next": onward})
        assert answer.headers["location"] == "/runs"


def test_every_answer_carries_the_headers_that_keep_scripts_out(world):
    run = world.run("alpha")
    with world.client() as client:
        for path in ("/runs", "/nope", "/login", f"/api/v1/runs/{run}", "/static/live.js", "/healthz"):
            headers = client.get(path).headers
            assert headers["content-security-policy"] == PAGE_POLICY
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
        for path in (f"/runs/{run}/report", f"/api/v1/runs/{run}/artifacts/report"):
            assert client.get(path).headers["content-security-policy"] == DOCUMENT_POLICY


@pytest.mark.row("A5")
def test_caller_that_asks_too_often_waits_and_others_do_not(still):
    limits = RequestLimits(requests_per_second=0.1, burst=5)
    with (
        still.serving(limits=limits),
        still.client(("alpha", "reader")) as noisy,
        still.client(("beta", "reader")) as calm,
    ):
        answers = [noisy.get("/api/v1/runs") for _ in range(8)]
        assert [each.status_code for each in answers[:5]] == [200] * 5
        assert answers[-1].status_code == 429
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert calm.get("/api/v1/runs").status_code == 200


def test_address_that_guesses_tokens_is_held_up(still):
    with (
        still.serving(limits=RequestLimits(failed_logins_per_second=0.01, failed_logins_burst=3)),
        still.client(None) as client,
    ):
        codes = [client.get("/api/v1/runs", headers={"Authorization": f"Bearer gl_{n}"}).status_code for n in range(5)]
        assert codes == [401, 401, 401, 429, 429]


def test_guesses_hold_up_no_one_whose_token_is_known(still):
    """Behind a proxy everybody comes from one address."""
    with (
        still.serving(limits=RequestLimits(failed_logins_per_second=0.01, failed_logins_burst=1)),
        still.client(None) as client,
    ):
        assert [client.post("/login", data={"token": "gl_x"}).status_code for _ in range(3)] == [401, 429, 429]
        assert client.get("/api/v1/runs", headers={"Authorization": "Bearer gl_y"}).status_code == 429
        token = still.tokens["*", "admin"]
        assert client.get("/api/v1/runs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert client.post("/login", data={"token": token}, follow_redirects=False).status_code == 303


@pytest.mark.parametrize("chunked", [False, True])
def test_body_that_is_too_large_is_not_read(world, chunked):
    pieces = [b"x" * 40_000] * 3
    with world.client() as client:
        content = iter(pieces) if chunked else b"".join(pieces)
        answer = client.post("/api/v1/runs", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_body_that_never_arrives_is_given_up(still):
    with still.serving(limits=RequestLimits(body_seconds=0.3)):
        where = urlsplit(still.url)
        with socket.create_connection((where.hostname, where.port)) as line:
            token = still.tokens["*", "admin"]
            head = [
                "POST /api/v1/runs HTTP/1.1",
                "Host: localhost",
                f"Authorization: Bearer {token}",
                "Content-Length: 9",
            ]
            line.sendall("\r\n".join([*head, "", "{"]).encode())
            began = time.monotonic()
            assert b" 408 " in line.recv(200)
            assert time.monotonic() - began < 5


def test_streams_of_one_caller_are_counted(still):
    run = still.run("alpha", "open")
    limits = RequestLimits(streams_each=2, requests_per_second=1000, burst=1000)
    with still.serving(limits=limits), still.client(("alpha", "reader")) as client:
        path = f"/api/v1/runs/{run}/events"
        with client.stream("GET", path) as first, client.stream("GET", path) as second:
            lines = (first.iter_lines(), second.iter_lines())
            assert [next(each) for each in lines] == ["retry: 3000"] * 2
            assert client.get(path).status_code == 429
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with client.stream("GET", f"/api/v1/runs/{run}/events") as again:
                if again.status_code == 200:
                    return
            time.sleep(0.1)
        pytest.fail("streams that were left were never given back")


def test_session_survives_a_restart_of_the_service(still):
    with still.serving(), still.client(None) as browser:
        log_in(still, browser)
        kept = dict(browser.cookies)
    with still.serving(limits=PLENTY):
        answer = httpx.get(f"{still.url}/runs", cookies=kept, trust_env=False, verify=False)
        assert answer.status_code == 200


def test_a_copy_of_a_cookie_is_worth_nothing_after_the_logout(still):
    token = still.tokens["*", "admin"]
    with still.serving(), still.client(None) as client:
        said = client.post("/login", data={"token": token}, follow_redirects=False).headers["set-cookie"]
        copy, other = {"Cookie": said.partition(";")[0]}, f"{said.partition('.')[0]}.9999999999.00"
        client.cookies.clear()
        assert client.get("/runs", headers=copy, follow_redirects=False).status_code == 200
        assert client.post("/logout", headers={"Cookie": other}, follow_redirects=False).status_code == 303
        assert client.get("/runs", headers=copy, follow_redirects=False).status_code == 200
        assert client.post("/logout", headers=copy, follow_redirects=False).status_code == 303
        client.cookies.clear()
        answer = client.get("/runs", headers=copy, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=/runs")
        client.post("/login", data={"token": token}, follow_redirects=False)
        assert client.get("/runs", follow_redirects=False).status_code == 200

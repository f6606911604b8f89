"""A forge that is down, slow, limiting or talking rubbish: errors of the right class, in bounded time and memory."""

import time

import pytest
from tests.contracts.forge.conftest import TOKEN, forge_of
from tests.contracts.forge.stub import Failure, Stub

from gangline.errors import ConfigError, StorageError
from gangline.forge import client
from gangline.forge.protocol import CommitStatus

REF = "refs/heads/main"
DONE = CommitStatus(context="gangline/train", state="success", description="done")


@pytest.fixture
def stub():
    made = Stub("github")
    made.world.branches["main"] = "1" * 40
    yield made
    made.close()


@pytest.fixture
def counted():
    return []


@pytest.fixture
def forge(stub, counted):
    return forge_of("github", stub.url, counted=lambda name, outcome: counted.append((name, outcome)))


def test_a_read_that_failed_once_is_tried_again(stub, forge, counted):
    stub.fail(Failure(502))
    assert forge.head("team/tiny", REF).commit == "1" * 40
    assert counted == [("ours", "failed"), ("ours", "ok")]


def test_a_write_that_failed_is_left_to_the_caller(stub, forge):
    stub.fail(Failure(502))
    with pytest.raises(StorageError, match=r"answered POST .* with 502: no"):
        forge.set_status("team/tiny", "1" * 40, DONE)
    assert len(stub.seen) == 1


@pytest.mark.parametrize(
    "failure",
    [
        Failure(429, {"Retry-After": "30"}),
        Failure(403, {"Retry-After": "30"}),
        Failure(403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 30)}),
        Failure(429),
    ],
)
def test_a_forge_that_was_asked_too_often_is_left_alone_until_it_says(stub, forge, counted, failure):
    stub.fail(failure)
    with pytest.raises(StorageError, match="limits the rate of requests"):
        forge.head("team/tiny", REF)
    for _ in range(3):
        with pytest.raises(StorageError, match="is rate limited; it accepts requests again"):
            forge.set_status("team/tiny", "1" * 40, DONE)
    assert len(stub.seen) == 1
    assert counted == [("ours", "limited")]


def test_a_forge_may_not_send_us_away_for_long(stub, forge):
    stub.fail(Failure(429, {"Retry-After": "99999999"}))
    with pytest.raises(StorageError, match=r"again in 3600 s"):
        forge.head("team/tiny", REF)


def test_a_token_that_is_refused_is_not_an_outage(stub, forge, counted):
    stub.fail(Failure(401, body=b'{"message": "Bad credentials"}'))
    with pytest.raises(ConfigError, match=r"refuses the token .* 401 Bad credentials; give forge\.ours\.token"):
        forge.head("team/tiny", REF)
    assert counted == [("ours", "refused")]


def test_a_drip_of_bytes_ends_by_the_deadline(stub, monkeypatch):
    monkeypatch.setattr(client, "REQUEST_SECONDS", 0.5)
    stub.fail(*[Failure(200, body=b" " * 2000, seconds_a_byte=0.05)] * 2)
    began = time.monotonic()
    from gangline.http.address_check import read_origin

    origin = read_origin(stub.url, key="k", named_by_site=True)
    api = client.ForgeClient(name="ours", origin=origin, token_header=dict, seconds=0.5)
    with pytest.raises(StorageError, match="does not answer"):
        api.get("/user")
    assert time.monotonic() - began < 10


def test_an_endless_answer_is_not_read_to_its_end(stub, forge, monkeypatch):
    monkeypatch.setattr(client, "ANSWER_BYTES", 10_000)
    stub.fail(*[Failure(200, body=b"[" + b"1," * 20_000 + b"1]")] * 2)
    with pytest.raises(StorageError, match="the response is larger than"):
        forge.head("team/tiny", REF)


@pytest.mark.parametrize(
    "body", [b"", b"<html>login</html>", b"[]", b"7", b'{"object": 7}', b'{"object": {"sha": null}}']
)
def test_an_answer_that_is_not_the_apis_is_an_outage(stub, forge, body):
    stub.fail(Failure(200, body=body))
    with pytest.raises(StorageError, match="returned something else than its API documents"):
        forge.head("team/tiny", REF)


def test_a_forge_that_is_down_is_said_in_one_sentence(stub, forge, counted):
    stub.close()
    with pytest.raises(StorageError, match=r"http://127\.0\.0\.1:\d+/api/v3 cannot be reached: .*refused"):
        forge.head("team/tiny", REF)
    assert counted == [("ours", "failed")] * 2


def test_the_token_travels_in_one_header_and_nowhere_else(stub, forge):
    forge.head("team/tiny", REF)
    ((_, path, headers, body),) = stub.seen
    assert [name for name, value in headers.items() if TOKEN in value] == ["Authorization"]
    assert TOKEN not in path
    assert TOKEN.encode() not in body


def test_a_list_of_many_pages_is_read_whole(stub, forge):
    stub.world.branches |= {f"b{n}": f"{n:040x}" for n in range(250)}
    assert len(forge.heads("team/tiny")) == 251


def test_an_absurd_list_is_given_up(stub, forge, monkeypatch):
    monkeypatch.setattr(client, "MAX_PAGES", 2)
    stub.world.branches |= {f"b{n}": f"{n:040x}" for n in range(250)}
    with pytest.raises(StorageError, match="more than 2 pages"):
        forge.heads("team/tiny")


def test_a_missing_token_is_found_when_it_is_needed_and_not_before(stub):
    from gangline.forge.factory import open_forges
    from gangline.spec.config.site import ForgeTable, Site

    site = Site(forge={"ours": ForgeTable(kind="github", url=stub.url, token="secret:env:NOT_THERE")})
    opened = open_forges(site, {})["ours"]
    with pytest.raises(ConfigError, match="secret:env:NOT_THERE"):
        opened.head("team/tiny", REF)
    assert stub.seen == []

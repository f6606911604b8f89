"""From whom a request comes, as its budgets are counted."""

import httpx
import pytest
from tests.serve.world import served

from gangline.serve.web.client_address import budget_key

PROXIES = ("127.0.0.0/31", "10.0.0.0/8", "192.0.2.7")


async def client_app(scope, receive, send):
    """An application that answers with the client that it sees."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": budget_key(scope["client"][0]).encode()})


@pytest.fixture(scope="module", params=["127.0.0.1:0", "[::]:0"])
def port(request):
    """A server of IPv4, and one of both families that sees IPv4 as IPv6."""
    with served(client_app, proxies=PROXIES, listen=request.param) as url:
        yield int(url.rpartition(":")[2])


def seen(port, *headers, address="127.0.0.1"):
    transport = httpx.HTTPTransport(local_address=address)
    with httpx.Client(transport=transport, trust_env=False) as client:
        return client.get(f"http://127.0.0.1:{port}/", headers=headers).text


@pytest.mark.parametrize(
    ("said", "client"),
    [
        (["198.51.100.1"], "198.51.100.1"),
        (["198.51.100.1:443"], "198.51.100.1"),
        (["1.1.1.1, 198.51.100.1, 192.0.2.7 , 10.9.9.9"], "198.51.100.1"),
        (["1.1.1.1", "198.51.100.1"], "198.51.100.1"),
        (["198.51.100.1", "10.9.9.9"], "198.51.100.1"),
        (["::ffff:198.51.100.1"], "198.51.100.1"),
        (["[2001:db8::9]:47"], "2001:db8::/64"),
        (["198.51.100.1, unknown"], ""),
        (["198.51.100.1,"], "127.0.0.1"),
        ([], "127.0.0.1"),
    ],
)
def test_behind_a_proxy_the_nearest_one_that_is_none_counts(port, said, client):
    assert seen(port, *(("X-Forwarded-For", each) for each in said)) == client


def test_a_header_of_anyone_but_a_proxy_says_nothing(port):
    headers = [("X-Forwarded-For", "198.51.100.1"), ("Forwarded", "for=198.51.100.1"), ("X-Real-IP", "198.51.100.1")]
    assert seen(port, *headers, address="127.0.0.2") == "127.0.0.2"


def test_no_other_header_is_read(port):
    assert seen(port, ("Forwarded", "for=198.51.100.1"), ("X-Real-IP", "198.51.100.1")) == "127.0.0.1"


def test_a_network_of_ipv6_is_one_client_and_ipv4_is_the_same_in_both_forms():
    assert budget_key("2001:db8::1") == budget_key("2001:db8::ffff:1") == "2001:db8::/64"
    assert budget_key("2001:db8:0:1::1") != budget_key("2001:db8::1")
    assert budget_key("::ffff:192.0.2.1") == budget_key("192.0.2.1") == "192.0.2.1"
    assert budget_key("somewhere") == budget_key("else") == ""

"""From whom a request comes, whatever its headers say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.serve.web.client_address import ClientAddresses, budget_key

PROXIES = ClientAddresses(["10.0.0.0/8", "192.0.2.7", "2001:db8:1::/48"])
addresses = st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)
strangers = addresses.filter(lambda each: not PROXIES.is_proxy(each))


def of(peer, **headers):
    return PROXIES.client(peer, [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()])


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        ("203.0.113.1", {"x_forwarded_for": "198.51.100.1"}, "203.0.113.1"),
        ("10.1.2.3", {}, "10.1.2.3"),
        ("10.1.2.3", {"x_forwarded_for": "198.51.100.1"}, "198.51.100.1"),
        ("10.1.2.3", {"x_forwarded_for": "198.51.100.1:443"}, "198.51.100.1"),
        ("10.1.2.3", {"x_forwarded_for": "1.1.1.1, 198.51.100.1, 192.0.2.7 , 10.9.9.9"}, "198.51.100.1"),
        ("10.1.2.3", {"x_forwarded_for": "10.9.9.9, 192.0.2.7"}, "10.9.9.9"),
        ("10.1.2.3", {"x_forwarded_for": "198.51.100.1, unknown"}, "10.1.2.3"),
        ("10.1.2.3", {"x_forwarded_for": "198.51.100.1,"}, "10.1.2.3"),
        ("10.1.2.3", {"forwarded": "for=198.51.100.1;proto=https;by=10.1.2.3"}, "198.51.100.1"),
        ("10.1.2.3", {"forwarded": 'for=1.1.1.1, FOR="[2001:db8::9]:47"'}, "2001:db8::9"),
        ("10.1.2.3", {"forwarded": "for=_hidden"}, "10.1.2.3"),
        ("10.1.2.3", {"forwarded": "by=198.51.100.1"}, "10.1.2.3"),
        ("10.1.2.3", {"forwarded": 'for=6.6.6.6, for=", for="[2001:db8::9]"'}, "10.1.2.3"),
        ("10.1.2.3", {"forwarded": "for=198.51.100.1", "x_forwarded_for": "198.51.100.1"}, "198.51.100.1"),
        ("10.1.2.3", {"forwarded": "for=198.51.100.2", "x_forwarded_for": "198.51.100.1"}, "10.1.2.3"),
        ("::ffff:10.1.2.3", {"x_forwarded_for": "::ffff:198.51.100.1"}, "198.51.100.1"),
        ("2001:db8:1::5", {"x_forwarded_for": "198.51.100.1"}, "198.51.100.1"),
    ],
)
def test_the_nearest_one_that_is_not_a_proxy_counts(peer, headers, client):
    assert of(peer, **headers) == client


@given(peer=strangers, said=st.text(max_size=80))
def test_no_one_is_believed_but_proxies(peer, said):
    assert PROXIES.client(peer, [(b"x-forwarded-for", said.encode()), (b"forwarded", said.encode())]) == peer


@given(before=st.lists(addresses | st.text(max_size=10), max_size=40), client=strangers)
def test_what_a_client_wrote_before_its_proxy_did_changes_nothing(before, client):
    said = ", ".join([*before, client]).encode()
    assert budget_key(PROXIES.client("10.0.0.1", [(b"x-forwarded-for", said)])) == budget_key(client)


@given(before=st.text(max_size=60), client=strangers)
def test_forwarded_is_the_clients_or_the_proxys_own(before, client):
    hop = f'for="[{client}]"' if ":" in client else f"for={client}"
    said = f"{before}, {hop}".encode()
    assert budget_key(PROXIES.client("10.0.0.1", [(b"forwarded", said)])) in {budget_key(client), "10.0.0.1"}


def test_a_network_of_ipv6_is_one_client_and_ipv4_is_the_same_in_both_forms():
    assert budget_key("2001:db8::1") == budget_key("2001:db8::ffff:1") == "2001:db8::/64"
    assert budget_key("2001:db8:0:1::1") != budget_key("2001:db8::1")
    assert budget_key("::ffff:192.0.2.1") == budget_key("192.0.2.1") == "192.0.2.1"
    assert budget_key("somewhere") == "somewhere"

"""A5: headers that say whom a proxy speaks for count from the proxies of the site alone, and lift nobody's limits."""

import pytest
from tests.attacks.served import service

from gangline.serve.web.rate_limits import RequestLimits

pytestmark = [pytest.mark.row("A5"), pytest.mark.long]
GUESSES = RequestLimits().failed_logins_burst


def guess(served, count, **headers):
    """Statuses of requests with tokens that nobody has, each with a word on where it comes from."""
    codes = []
    for number in range(count):
        own = {name: value.format(number) for name, value in headers.items()}
        with served.client(Authorization="Bearer gl_nobody", **own) as client:
            codes.append(client.get("/api/v1/runs").status_code)
    return codes


CLAIMS = [
    {"X-Forwarded-For": "198.51.100.{0}"},
    {"Forwarded": "for=198.51.100.{0}"},
    {"X-Forwarded-For": "198.51.100.{0}, 127.0.0.1"},
    {"X-Real-IP": "198.51.100.{0}"},
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with service(tmp_path_factory.mktemp("plain")) as found:
        yield found


def test_no_one_who_is_not_a_proxy_is_believed_not_even_on_this_machine(plain):
    assert 401 in guess(plain, GUESSES + 5)
    for claim in CLAIMS:
        assert set(guess(plain, 5, **claim)) <= {429, 401}
        assert 429 in guess(plain, 5, **claim), claim


def test_those_behind_a_proxy_have_limits_of_their_own_and_none_may_choose_them(tmp_path):
    with service(tmp_path, "127.0.0.1") as served:
        assert set(guess(served, 2 * GUESSES, **{"X-Forwarded-For": "203.0.113.7"})) == {401, 429}
        assert guess(served, 3, **{"X-Forwarded-For": "203.0.113.8"}) == [401] * 3
        spoofed = {"X-Forwarded-For": "198.51.100.{0}, 203.0.113.7"}  # the client wrote the first, the proxy the last
        assert 429 in guess(served, 10, **spoofed)
        assert guess(served, 3, **{"X-Forwarded-For": "[2001:db8::1]:4711"}) == [401] * 3
        other = {"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=198.51.100.{0}", "X-Real-IP": "198.51.100.{0}"}
        assert 429 in guess(served, 2 * GUESSES, **other)
        assert 429 in guess(served, 2 * GUESSES, Forwarded="for=198.51.100.{0}")

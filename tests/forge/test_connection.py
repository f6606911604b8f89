"""Requests that somebody else steers: no byte reaches a decoy, by whatever form of URL, name, redirect or answer."""

import contextlib
import itertools
import json
import socket
import threading

import pytest
from tests.contracts.forge.stub import Failure, Stub

from gangline.errors import ConfigError, GanglineError, StorageError
from gangline.forge.factory import open_forges
from gangline.forge.protocol import CommitStatus
from gangline.http.address_check import read_origin, refusal
from gangline.spec.config.site import ForgeTable, Site

pytestmark = pytest.mark.row("P3")
PUBLIC = "git.example.org"
FORBIDDEN = (
    "168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "192.88.99.1", "fec0::1", "fd20:ce::254",
    "127.0.0.1", "127.8.9.10", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "100.100.100.200",
    "224.0.0.1", "255.255.255.255", "240.0.0.1", "::1", "::", "::ffff:127.0.0.1", "::ffff:7f00:1",
    "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
    "2001:0:4136:e378:8000:63bf:80ff:fffe", "fe80::1", "fe80::1%lo", "ff02::1", "fd00:ec2::254", "not an address", "",
)  # fmt: skip
PRIVATE = ("10.0.0.5", "172.16.3.4", "192.168.1.1", "100.64.0.1", "fc00::1", "::ffff:10.0.0.5", "64:ff9b::a00:5")


class Decoy:
    """Counts who connects; on a free port of every loopback address it can have."""

    def __init__(self):
        self.touched = 0
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self.port = self._sockets[0].getsockname()[1]
        if socket.has_ipv6:
            with contextlib.suppress(OSError):  # this machine has no IPv6
                self._sockets.append(socket.create_server(("::1", self.port), family=socket.AF_INET6))
        for each in self._sockets:
            threading.Thread(target=self._accept, args=(each,), daemon=True).start()

    def _accept(self, listening):
        while True:
            try:
                taken, _ = listening.accept()
            except OSError:
                return
            self.touched += 1
            taken.close()

    def close(self):
        for each in self._sockets:
            each.close()


@pytest.fixture(scope="module")
def decoy():
    made = Decoy()
    yield made
    made.close()
    assert made.touched == 0


@pytest.fixture
def stub():
    made = Stub("github")
    yield made
    made.close()


def forge(url, resolve=None, kind="gitea"):
    site = Site(forge={"ours": ForgeTable(kind=kind, url=url, token="secret:env:T")})
    options = {"resolve": resolve} if resolve else {}
    return open_forges(site, {"T": "t0ken"}, **options)["ours"]


def ask(url, resolve=None, kind="gitea"):
    return forge(url, resolve, kind).head("team/tiny", "refs/heads/main")


@pytest.mark.parametrize("address", FORBIDDEN)
def test_a_name_that_leads_to_a_forbidden_address_is_not_dialled(decoy, address):
    with pytest.raises(ConfigError, match="nothing was sent there"):
        ask(f"https://{PUBLIC}:{decoy.port}", lambda *_: [address])


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_for_forges_that_the_site_names(address):
    own = read_origin(f"https://{PUBLIC}", key="k", named_by_site=True)
    public = read_origin("https://api.github.com", key="k", named_by_site=False)
    assert refusal(address, own) is None
    assert refusal(address, public) is not None


def test_one_forbidden_address_among_good_ones_refuses_the_name(decoy):
    with pytest.raises(ConfigError, match="leads to 127"):
        ask(f"https://{PUBLIC}:{decoy.port}", lambda *_: ["93.184.216.34", "127.0.0.1"])


def test_a_name_that_changes_its_mind_is_asked_once_and_what_was_judged_is_dialled(stub):
    port, asked = int(stub.url.rsplit(":", 1)[1]), []

    def resolve(host, _port):
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    stub.world.branches["main"] = "1" * 40
    assert ask(f"http://localhost:{port}", resolve, "github").commit == "1" * 40
    assert asked == ["localhost"]


def test_localhost_that_leads_elsewhere_is_refused(decoy):
    with pytest.raises(ConfigError, match="not the loopback"):
        ask(f"http://localhost:{decoy.port}", lambda *_: ["93.184.216.34"])


HOSTS = (
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "localhost",
    "localhost.", "LOCALHOST", "127.0.0.1.nip.io", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[0:0:0:0:0:0:0:1]", "[::]",
    "0.0.0.0", "0", "169.254.169.254", "[fe80::1%25lo]", "①②⑦.⓪.⓪.①", "127。0。0。1",
    "metadata.google.internal",
    "user@127.0.0.1", "git.example.org@127.0.0.1", "127.0.0.1%00.git.example.org", "127.0.0.1%2f@git.example.org",
)  # fmt: skip
SCHEMES = ("http", "https", "HTTP", "ftp", "file", "gopher", "git", "ssh", "ext", "dict", "javascript")
TAILS = ("", "/", "/api/v1", "/x?y=1", "/x#y")


def forms(port):
    """URLs as an attacker writes them, most of them for this machine."""
    for scheme, host, tail in itertools.product(SCHEMES, HOSTS, TAILS):
        yield f"{scheme}://{host}:{port}{tail}"
    for odd in ("//127.0.0.1:{}", "127.0.0.1:{}", "http:127.0.0.1:{}", "http:\\\\127.0.0.1:{}", "http:///127.0.0.1:{}"):
        yield odd.format(port)
    for odd in (
        " http://127.0.0.1:{}",
        "http://127.0.0.1:{}\r\nX: y",
        "http://127.0.0.1:{}\t/",
        "h\nttp://127.0.0.1:{}",
    ):
        yield odd.format(port)


def test_no_redirect_is_followed_whatever_it_says(decoy, stub):
    reader = forge(stub.url, kind="github")
    seen = 0
    for status, url in zip(itertools.cycle((301, 302, 303, 307, 308)), forms(decoy.port), strict=False):
        location = url.encode("ascii", "ignore").decode().replace("\r", "").replace("\n", "")
        stub.fail(Failure(status, {"Location": location}))
        with pytest.raises(ConfigError, match="a redirect, and none is followed"):
            reader.head("team/tiny", "refs/heads/main")
        seen += 1
    assert seen > 1000
    assert decoy.touched == 0


SAY_SO = {"127.0.0.1", "localhost", "localhost.", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]"}


def test_urls_that_only_turn_out_to_be_this_machine_are_refused(decoy):
    """A site may name a forge on this machine, in so many words."""
    tried = 0
    for url in forms(decoy.port):
        host = url.split("://")[-1].split("/")[0].rsplit(":", 1)[0].lower()
        if host not in SAY_SO:
            tried += 1
            with pytest.raises(GanglineError):
                ask(url, lambda *_: ["127.0.0.1"])
    assert tried > 900
    assert decoy.touched == 0


def test_urls_in_answers_lead_nowhere(decoy, stub):
    """Next pages, clone and comment URLs of an answer: all are data."""
    evil = f"http://127.0.0.1:{decoy.port}/"
    page = json.dumps([{"name": "main", "commit": {"sha": "1" * 40, "url": evil}, "_links": {"self": evil}}]).encode()
    stub.fail(Failure(200, {"Link": f'<{evil}>; rel="next", <{evil}>; rel="last"'}, page))
    reader = forge(stub.url, kind="github")
    assert ("refs/heads/main" in dict(reader.heads("team/tiny"))) is True
    assert decoy.touched == 0
    assert reader.clone_url("team/tiny") == f"{stub.url}/team/tiny.git"


def test_proxies_of_the_environment_are_not_used(decoy, stub, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{decoy.port}")
    stub.world.branches["main"] = "1" * 40
    assert ask(stub.url, kind="github").commit == "1" * 40
    assert decoy.touched == 0


@pytest.mark.parametrize("name", ["../../@127.0.0.1", "team/tiny?x=http://127.0.0.1", "team/tiny#", "a\r\nHost: x/b"])
def test_names_of_strangers_never_leave_their_place_in_a_url(stub, name):
    with pytest.raises(ConfigError):
        forge(stub.url, kind="github").set_status(
            name, "1" * 40, CommitStatus(context="c", state="error", description="")
        )
    assert stub.seen == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://git.example.org", "wanted https"),
        ("https://token@git.example.org", "without user"),
        ("https://git.example.org/?x=1", "without user, query"),
        ("https://git.example.org:99999", "wanted a URL"),
        ("https://git_example", "wanted the name or address"),
        ("https://", "wanted the name or address"),
        ("ftp://git.example.org", "wanted https"),
        ("https://git.exam ple.org", "visible ASCII"),
    ],
)
def test_a_url_that_no_forge_should_have_says_what_works(url, said):
    with pytest.raises(ConfigError, match=rf"forge\.ours\.url: .*{said}"):
        forge(url)


def test_a_name_without_an_address_is_worth_another_try():
    def resolve(*_):
        raise socket.gaierror("no such name")

    with pytest.raises(StorageError, match=r"wanted the address of git\.example\.org"):
        ask(f"https://{PUBLIC}", resolve)

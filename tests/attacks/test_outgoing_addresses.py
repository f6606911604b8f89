"""P3, names that lead elsewhere: git, forges, registries, pipelines servers are dialled at checked addresses alone."""

import functools
import http.server
import socket
import threading
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.line.repositories import git, make_repository
from tests.ports import free_port

from gangline.build.builders.recipe import make_recipe
from gangline.build.image_registry.http import RegistryHttp, check_registry_address
from gangline.build.image_registry.reference import ImageReference
from gangline.build.image_registry.repository import ImageRepository
from gangline.build.images import build_image
from gangline.errors import ConfigError, GanglineError, StorageError
from gangline.git.clones import Clones
from gangline.http.address_check import Origin, refusal
from gangline.http.client import HttpClient
from gangline.http.connections import checked
from gangline.http.retry import NoAnswer
from gangline.kfp.client import KfpHttp as KfpWire

pytestmark = pytest.mark.row("P3")
MAIN = "refs/heads/main"
NAME = "git.example.org"
NOBODYS = [
    "168.63.129.16", "169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "192.0.0.192",
    "fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fe80::a9fe:a9fe", "0.0.0.0", "0.1.2.3",
    "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::127.0.0.1", "::ffff:0:7f00:1",
    "64:ff9b:1::a9fe:a9fe", "100::1", "100:0:0:1::1", "2001::1", "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "2001:2::1", "2001:10::1", "2001:20::1", "2001:30::1", "2001:db8::1", "2002:a9fe:a9fe::", "2002:808:808::1",
    "2620:4f:8000::1", "3fff::1", "4000::1", "5f00::1", "fec0::1", "feff::1", "fe80::1", "fe80::1%lo",
    "2606:4700::1%lo", "ff02::1", "1::1", "127.1", "0x7f.1", "2130706433", "not an address", "",
]  # fmt: skip
OWN_NETWORKS = ["10.0.0.5", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255", "fc00::1",
                "fd12:3456::1", "::ffff:10.0.0.5", "64:ff9b::a00:5"]  # fmt: skip
PUBLIC = ["93.184.216.34", "8.8.8.8", "172.32.0.1", "100.128.0.1", "192.167.1.1", "169.253.0.1", "2606:4700::1111",
          "2a00:1450::1", "64:ff9b::808:808", "::ffff:8.8.8.8"]  # fmt: skip
LOOPBACKS = ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]


def server(host=NAME, *, named):
    return Origin("https", host, 443, "", named)


@pytest.mark.parametrize("named", [True, False], ids=["named by the site", "public"])
def test_special_networks_are_for_no_one_and_private_ones_for_whom_the_site_names(named):
    own = server(named=named)
    assert not [each for each in (*NOBODYS, *LOOPBACKS) if refusal(each, own) is None]
    assert not [each for each in PUBLIC if refusal(each, own)]
    assert [each for each in OWN_NETWORKS if refusal(each, own) is None] == (OWN_NETWORKS if named else [])


def test_this_machine_is_for_a_url_of_the_site_that_says_so():
    for host in ("localhost", "127.0.0.1", "::1"):
        assert all(refusal(each, server(host, named=True)) is None for each in LOOPBACKS)
        assert all(refusal(each, server(host, named=False)) for each in LOOPBACKS)
        assert all(refusal(each, server(host, named=True)) for each in (*PUBLIC, *OWN_NETWORKS, *NOBODYS))


@given(number=st.integers(0, 2**32 - 1), named=st.booleans())
def test_an_ipv4_address_in_an_ipv6_one_is_judged_as_itself(number, named):
    plain = IPv4Address(number)
    forms = [IPv6Address((0xFFFF << 32) | number), IPv6Address((0x64FF9B << 96) | number)]
    origin = server(named=named)
    assert {refusal(str(each), origin) is None for each in forms} == {refusal(str(plain), origin) is None}
    hidden = [IPv6Address(number), IPv6Address((0x2002 << 112) | (number << 80)), IPv6Address((0xFE80 << 112) | number)]
    assert all(refusal(str(each), origin) for each in hidden)


@given(number=st.one_of(st.integers(0, 2**32 - 1), st.integers(0, 2**128 - 1)), named=st.booleans())
def test_what_python_takes_for_special_is_never_dialled_as_public(number, named):
    """Its lists are those of another author."""
    address = ip_address(number)
    kinds = (address.is_loopback, address.is_link_local, address.is_multicast, address.is_reserved)
    nat64 = address.version == 6 and address in ip_network("64:ff9b::/96")
    if refusal(str(address), server(named=named)) is None and not nat64:
        assert not any(kinds) or (address.version == 6 and address.ipv4_mapped)
        assert named or address.is_global or (address.version == 6 and address.ipv4_mapped)


@contextmanager
def listening(host, port=0, folder=None):
    """A server on one address: the files of `folder`, or 404; what it was asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET() if folder else self.send_error(404)

        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=str(folder)) if folder else Handler
    made = http.server.ThreadingHTTPServer((host, port), handler)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made.server_port, asked
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


@pytest.fixture
def bare(tmp_path):
    origin = make_repository(tmp_path / "origin")
    git(tmp_path, "clone", "--quiet", "--bare", str(origin), str(tmp_path / "served" / "bare.git"))
    git(tmp_path / "served" / "bare.git", "update-server-info")
    return tmp_path / "served"


def fetch(tmp_path, url, resolve, *, named=True):
    Clones(tmp_path / "home", resolve=resolve).fetch(url, name="a", refs=[MAIN], named_by_site=named)


def test_git_dials_the_address_that_was_checked_and_looks_up_no_other(tmp_path, bare):
    with listening("127.0.0.7", folder=bare) as (port, asked), listening("127.0.0.1", port) as (_, decoy):
        fetch(tmp_path, f"http://localhost:{port}/bare.git", lambda *_: ["127.0.0.7"])
    assert any("info/refs" in path for path in asked)
    assert not decoy


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "168.63.129.16", "fec0::1"])
def test_git_asks_nothing_where_a_name_leads_to_no_forge(tmp_path, address):
    with listening("127.0.0.1") as (port, asked):
        for method in ("fetch", "fetch_default_branch", "heads", "fetch_model_tags", "push_model_tags"):
            clones = Clones(tmp_path / "home", resolve=lambda *_: [address])
            options = {"fetch": {"name": "a", "refs": [MAIN]}, "heads": {}}.get(method, {"name": "a"})
            with pytest.raises(ConfigError, match="nothing was sent there"):
                getattr(clones, method)(f"https://{NAME}:{port}/a.git", **options)
    assert not asked


def test_git_of_a_public_service_reaches_no_private_network_and_no_proxy(tmp_path, bare, monkeypatch):
    with pytest.raises(ConfigError, match="a private network"):
        fetch(tmp_path, f"https://{NAME}/a.git", lambda *_: ["10.0.0.5"], named=False)
    with listening("127.0.0.1", folder=bare) as (port, _), listening("127.0.0.1") as (proxy, decoy):
        for name in ("http_proxy", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        fetch(tmp_path, f"http://localhost:{port}/bare.git", lambda *_: ["127.0.0.1"])
    assert not decoy


def registry(host, resolve, *, named=True):
    return ImageRepository(
        ImageReference(host, "team/a"), RegistryHttp(host, None, named_by_site=named, resolve=resolve)
    )


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "168.63.129.16", "fec0::1"])
def test_a_registry_is_asked_nothing_where_its_name_leads_to_none(address):
    with listening("127.0.0.1") as (port, asked), pytest.raises(ConfigError, match="nothing was sent there"):
        registry(f"registry.example:{port}", lambda *_: [address]).resolve("1")
    assert not asked


def test_a_registry_is_dialled_at_the_address_that_was_checked():
    with listening("127.0.0.7") as (port, asked), listening("127.0.0.1", port) as (_, decoy):
        assert registry(f"localhost:{port}", lambda *_: ["127.0.0.7"]).resolve("1") is None
    assert asked == ["/v2/team/a/manifests/1"]
    assert not decoy


def test_a_registry_that_a_line_names_is_neither_this_machine_nor_on_a_private_network():
    with listening("127.0.0.1") as (port, asked):
        for host, address in ((f"localhost:{port}", "127.0.0.1"), ("registry.example", "10.0.0.5"),
                              (f"127.0.0.1:{port}", "127.0.0.1"), ("metadata.example", "169.254.169.254")):  # fmt: skip
            with pytest.raises(ConfigError, match="nothing was sent there"):
                registry(host, lambda *_, address=address: [address], named=False).resolve("1")
            with pytest.raises(ConfigError, match="nothing was sent there"):
                check_registry_address(host, resolve=lambda *_, address=address: [address])
    assert not asked


@pytest.mark.parametrize("target", ["https://127.0.0.1:{}/x", "https://localhost:{}/x", "http://127.0.0.1:{}/x"])
def test_no_answer_of_a_registry_elsewhere_leads_to_this_machine(target):
    """Redirects, challenges and places of uploads are URLs that the registry gives."""
    with listening("127.0.0.1") as (port, asked):
        client = HttpClient(checked("registry.example", named_by_site=True))
        with pytest.raises(ConfigError, match="this machine itself"):
            client.request("GET", target.format(port))
    assert not asked


def test_no_builder_is_given_a_base_that_leads_where_no_request_goes(monkeypatch):
    class Never:
        name = "docker"

        def build(self, *_):
            raise AssertionError("it was told")

    base = f"localhost:5000/evil@sha256:{'b' * 64}"
    recipe = make_recipe(b"", base=base, image="registry.example/env", site_base=f"other.example/x@sha256:{'b' * 64}")
    office = type("Office", (), {"environ": {}, "store": type("Store", (), {"get": lambda *_: None})()})
    with pytest.raises(ConfigError, match="this machine itself"):
        build_image(recipe, builder=Never(), image_store=office, commit="0" * 40)


def test_a_pipelines_server_is_dialled_at_a_checked_address(monkeypatch):
    monkeypatch.setattr("gangline.http.connections.system_resolve", lambda *_: ["169.254.169.254"])
    with pytest.raises(ConfigError, match="nothing was sent there"):
        KfpWire("http://pipelines.example", lambda: None).get("/runs")

    def nowhere(*_):
        raise socket.gaierror("no such name")

    monkeypatch.setattr("gangline.http.connections.system_resolve", nowhere)
    with pytest.raises(NoAnswer):
        KfpWire("http://pipelines.example", lambda: None).request("GET", "/runs")
    with pytest.raises(StorageError):
        registry("registry.example", nowhere).resolve("1")


def test_a_server_that_is_away_is_still_worth_another_try():
    port = free_port()
    with pytest.raises(GanglineError) as away:
        registry(f"127.0.0.1:{port}", lambda *_: ["127.0.0.1"]).resolve("1")
    assert isinstance(away.value, StorageError)

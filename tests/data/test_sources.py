"""Sources: hosts before any byte, links, secrets, answers that are cut or no answer at all."""

import json
import os
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from gangline.data.sources import open_source
from gangline.errors import ConfigError, IntegrityError, StorageError
from gangline.spec.config.site_tables import SourceTable
from gangline.storage.objects.errors import PermissionDenied

DATA = b"0123456789" * 10


@contextmanager
def server(answer):
    """An HTTP server; `answer(path, query)` gives status, headers and body. Yields its port and the requests."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            parts = urlsplit(self.path)
            seen.append((self.path, dict(self.headers)))
            status, headers, body = answer(parts.path, parse_qs(parts.query))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
        yield found.server_port, seen
        found.shutdown()


def status(path, query):
    return 200, {}, json.dumps({"FileStatus": {"type": "FILE", "length": len(DATA), "pathSuffix": ""}}).encode()


def data_node(path, query):
    start, length = int(query["offset"][0]), int(query["length"][0])
    return 200, {}, DATA[start : start + length]


def name_node(port, host="127.0.0.1"):
    def answer(path, query):
        if query["op"] == ["OPEN"]:
            words = f"op=OPEN&offset={query['offset'][0]}&length={query['length'][0]}"
            return 307, {"Location": f"http://{host}:{port}{path}?{words}"}, b""
        return status(path, query)

    return answer


def opened(port, hosts=(), environ=(), seconds=2.0, **options):
    table = SourceTable(url=f"webhdfs://localhost:{port}/corpora", hosts=hosts, **options)
    return open_source("hdfs", table, dict(environ), deadline_seconds=seconds)


def test_a_named_host_is_read_and_another_is_refused_before_a_byte():
    with server(data_node) as (data, seen), server(name_node(data)) as (name, _):
        assert opened(name, (f"127.0.0.*:{data}",)).read("a", 10, 20) == DATA[10:30]
        seen.clear()
        for hosts in ((), ("127.0.0.1:1",), (f"127.0.0.2:{data}",)):
            with pytest.raises(IntegrityError, match=f"redirect to 127.0.0.1:{data}") as caught:
                opened(name, hosts).read("a", 10, 20)
            assert "source.hdfs.hosts" in str(caught.value)
        assert seen == []


def test_a_named_host_may_not_redirect_to_another():
    with server(data_node) as (stranger, seen):
        onwards = name_node(stranger)
        with server(onwards) as (data, _), server(name_node(data)) as (name, _):
            with pytest.raises(IntegrityError, match=f"redirect to 127.0.0.1:{stranger}"):
                opened(name, (f"127.0.0.1:{data}",)).read("a", 10, 20)
            assert seen == []


def test_a_name_node_may_not_redirect_its_lists_to_another():
    with server(status) as (stranger, seen):

        def answer(path, query):
            return 307, {"Location": f"http://127.0.0.1:{stranger}{path}"}, b""

        with server(answer) as (name, _), pytest.raises(IntegrityError, match="redirect"):
            opened(name).find("*")
        assert seen == []


@pytest.mark.parametrize("code", [403, 404, 500, 503])
def test_the_text_of_an_error_is_never_taken_for_bytes(code):
    body = b'{"RemoteException": {}}'
    with server(lambda path, query: (code, {}, body)) as (data, _), server(name_node(data)) as (name, _):
        source = opened(name, (f"127.0.0.1:{data}",), seconds=0.5)
        with pytest.raises(StorageError, match="cannot read a"):
            source.read("a", 10, len(body))


def test_a_short_answer_is_asked_for_again():
    answers = [DATA[:3], DATA[10:30]]
    with server(lambda path, query: (200, {}, answers.pop(0))) as (data, _), server(name_node(data)) as (name, _):
        assert opened(name, (f"127.0.0.1:{data}",)).read("a", 10, 20) == DATA[10:30]
    assert answers == []


def test_a_source_that_is_away_is_waited_for_and_then_exit_40():
    with server(status) as (port, _):
        pass
    with pytest.raises(StorageError, match=r"cannot look up a for [0-2] s: .*it goes on") as caught:
        next(opened(port, seconds=1.0).blocks("a"))
    assert caught.value.exit_code == 40
    with pytest.raises(StorageError, match="cannot list"):
        opened(port, seconds=0.5).find("*.arrow")


def test_passwords_and_tokens_go_as_the_scheme_wants_them_and_none_of_the_users_files(tmp_path, monkeypatch):
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine localhost login bob password other\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with server(status) as (port, seen):
        opened(port).find("a")
        opened(port, credentials="secret:env:T", environ={"T": "token-of-hdfs"}).find("a")
        opened(port, credentials="secret:env:T", environ={"T": "alice:secret"}).find("a")
    (_, none), (with_token, _), (_, basic) = seen
    assert "Authorization" not in none
    assert "delegation=token-of-hdfs" in with_token
    assert basic["Authorization"].startswith("Basic ")
    with pytest.raises(ConfigError, match="secret:env:T"):
        opened(1, credentials="secret:env:T")


def test_names_that_a_server_invents_do_not_leave_the_source():
    def listing(path, query):
        if path != "/webhdfs/v1/corpora":
            return status(path, query)
        names = [{"type": "FILE", "length": 1, "pathSuffix": each} for each in ("a", "x/../../../etc/passwd")]
        return 200, {}, json.dumps({"FileStatuses": {"FileStatus": names}}).encode()

    with server(listing) as (port, _), pytest.raises(IntegrityError, match="below its URL"):
        opened(port).find("**")


def test_links_of_a_folder_do_not_lead_out_of_it(tmp_path):
    (tmp_path / "data" / "in").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"key")
    (tmp_path / "data" / "real").write_bytes(b"text")
    (tmp_path / "data" / "in" / "inside").symlink_to("../real")
    (tmp_path / "data" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "data2").mkdir()
    (tmp_path / "data2" / "x").write_bytes(b"beside")
    (tmp_path / "data" / "beside").symlink_to("../data2")
    (tmp_path / "way").symlink_to("data")
    source = open_source("disk", SourceTable(url=f"file://{tmp_path}/way"), {})
    assert source.read("in/inside", 0, 9) == b"text"
    for path in ("out", "beside/x"):
        with pytest.raises(IntegrityError, match="a link out of it"):
            source.read(path, 0, 9)


def test_a_scheme_without_its_package_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigError, match=r"source\.far: sftp: .*gangline\[data\]"):
        open_source("far", SourceTable(url="sftp://host/data"), {})
    with pytest.raises(ConfigError, match=r"source\.far\.url: wanted a scheme that fsspec knows, found moon"):
        open_source("far", SourceTable(url="moon://host/data"), {})
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ConfigError, match=r"gangline\[data\]"):
        open_source("far", SourceTable(url="file:///data"), {})


def test_a_file_that_is_closed_is_refused_at_once(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may read every file")
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "a").chmod(0)
    with pytest.raises(StorageError, match="credentials"):
        open_source("disk", SourceTable(url=f"file://{tmp_path}"), {}).read("a", 0, 1)


def test_no_message_repeats_a_token():
    with server(status) as (port, _):
        pass
    with pytest.raises(StorageError, match=r"delegation=\*\*\*") as caught:
        opened(port, credentials="secret:env:T", environ={"T": "to/ken"}, seconds=0.3).find("a")
    assert "to/ken" not in str(caught.value)
    assert "to%2Fken" not in str(caught.value)


def web(port, hosts=(), environ=(), seconds=2.0, **options):
    table = SourceTable(url=f"http://localhost:{port}/dvc", hosts=hosts, **options)
    return open_source("web", table, dict(environ), deadline_seconds=seconds)


def web_files(path, query):
    return (200, {}, DATA) if path == "/dvc/a" else (404, {}, b"none")


def test_a_web_server_is_read_and_lacks_what_it_lacks():
    with server(web_files) as (port, _):
        assert [each.size_bytes for each in web(port).find("a")] == [len(DATA)]
        assert b"".join(web(port).blocks("a")) == DATA
        assert web(port).find("b") == []


def test_a_web_server_redirects_to_named_hosts_alone_and_they_get_no_login():
    with server(web_files) as (other, seen):
        onwards = {"Location": f"http://127.0.0.1:{other}/dvc/a"}
        with server(lambda path, query: (302, onwards, b"")) as (port, _):
            login = {"credentials": "secret:env:T", "environ": {"T": "alice:secret"}}
            for hosts in ((), ("127.0.0.1:1",)):
                with pytest.raises(IntegrityError, match=f"redirect to 127.0.0.1:{other}") as caught:
                    web(port, hosts, **login).read("a", 0, 100)
                assert "source.web.hosts" in str(caught.value)
                with pytest.raises(IntegrityError, match="redirect to"):
                    web(port, hosts, **login).find("a")
            assert seen == []
            assert web(port, (f"127.0.0.1:{other}",), **login).read("a", 0, 100) == DATA
            assert "Authorization" not in seen[-1][1]


@pytest.mark.parametrize(("secret", "sent"), [("alice:secret", "Basic "), ("token", "Bearer token")])
def test_a_web_server_that_wants_a_login_is_named_and_gets_it(secret, sent):
    def answer(path, query):
        return web_files(path, query) if any(sent in str(headers) for _, headers in seen[-1:]) else (401, {}, b"")

    with server(answer) as (port, seen):
        for attempt in (lambda: web(port).find("a"), lambda: web(port).read("a", 0, 9)):
            with pytest.raises(PermissionDenied, match=r"401.*source\.web\.credentials names who may") as caught:
                attempt()
            assert caught.value.exit_code == 40
        login = web(port, credentials="secret:env:T", environ={"T": secret})
        assert login.read("a", 0, 100) == DATA


def test_a_web_server_that_is_away_or_fails_is_no_missing_file():
    with server(lambda path, query: (503, {}, b"")) as (port, _), pytest.raises(StorageError, match="cannot look up a"):
        web(port, seconds=0.5).find("a")
    with pytest.raises(StorageError, match="cannot look up a for"):
        web(port, seconds=0.5).find("a")


def test_hdfs_that_wants_a_login_is_named_at_once():
    with server(lambda path, query: (401, {}, b"")) as (port, seen):
        with pytest.raises(PermissionDenied, match=r"source\.hdfs\.credentials"):
            opened(port, seconds=3.0).find("a")
        assert len(seen) == 1


@pytest.mark.parametrize(("kind", "make"), [("a pipe", os.mkfifo), ("a folder", os.mkdir)])
def test_what_is_no_file_in_a_folder_stops_no_reader_and_is_named(kind, make, tmp_path):
    make(tmp_path / "a")
    source = open_source("disk", SourceTable(url=f"file://{tmp_path}"), {}, deadline_seconds=1.0)
    for attempt in (lambda: source.find("a"), lambda: source.read("a", 0, 1), lambda: next(source.blocks("a"))):
        with pytest.raises(StorageError, match=f"wanted the file a, found {kind}"):
            attempt()

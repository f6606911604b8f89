"""Which source of the site a remote of a repository lies in: none that the site did not write down is ever asked."""

import pytest

from gangline.data.pointers import DvcRemotes, folder_of, read_remotes
from gangline.errors import ConfigError

SOURCES = {
    "data": "file:///srv/data", "dvc": "file:///srv/data/dvc", "web": "https://remote.dvc.org", "s3": "s3://bucket/a",
    "hdfs": "webhdfs://namenode:9870/corpora", "minio": "s3://corpora/a?endpoint=https://minio.example:9000",
}  # fmt: skip


def place(url, base="/home/me/repo/.dvc"):
    found = folder_of(url, SOURCES, base=base)
    return found and (found.source, found.folder)


@pytest.mark.parametrize(("url", "found"), [
    ("/srv/data/dvc", ("dvc", "")),
    ("/srv/data/dvc/", ("dvc", "")),
    ("/srv/data/dvc/project", ("dvc", "project")),
    ("/srv/data/other", ("data", "other")),
    ("file:///srv/data/other", ("data", "other")),
    ("https://remote.dvc.org/get-started", ("web", "get-started")),
    ("https://REMOTE.dvc.org/get-started", ("web", "get-started")),
    ("s3://bucket/a/b", ("s3", "b")),
    ("s3://corpora/a/b", ("minio", "b")),
    ("webhdfs://namenode:9870/corpora/x", ("hdfs", "x")),
])  # fmt: skip
def test_a_remote_below_the_url_of_a_source_is_read_there(url, found):
    assert place(url) == found


def test_a_relative_folder_begins_at_the_folder_of_its_configuration():
    assert place("../../dvc", base="/srv/data/repo/.dvc") == ("dvc", "")
    assert place("../../dvc", base="/home/me/repo/.dvc") is None


@pytest.mark.parametrize("url", [
    "/srv/database", "/srv", "/etc", "/srv/data/../../etc", "../../../../etc", "~/data",
    "http://remote.dvc.org/get-started", "https://remote.dvc.org.example/get-started", "https://remote.dvc.org:8443/a",
    "https://me@remote.dvc.org/a", "https://169.254.169.254/latest", "s3://bucket/ab", "s3://bucket/a/../b",
    "s3://bucket/a/%2e%2e/b",
    "s3://corpora/a?endpoint=https://minio.example:9000", "https://remote.dvc.org/a?b=c", "https://[broken", "webhdfs://namenode:9871/corpora",
    "ssh://srv/data", "remote://data/x", "",
])  # fmt: skip
def test_no_other_remote_is_in_a_source(url):
    assert place(url) is None


def test_remotes_are_read_as_dvc_writes_them():
    found = read_remotes(b"""[core]
    remote = storage
    autostage = true
['remote "storage"']
    url = "https://remote.dvc.org/a"   # public
['remote "docs/dvc"']
    url = /srv/data
['remote "cloud"']
    url = s3://bucket/a
    version_aware = true
""")
    assert found.url_of(None) == "https://remote.dvc.org/a"
    assert found.url_of("docs/dvc") == "/srv/data"
    with pytest.raises(ConfigError, match="version_aware"):
        found.url_of("cloud")
    with pytest.raises(ConfigError, match=r"wanted a remote 'x', found: cloud, docs/dvc, storage"):
        found.url_of("x")
    with pytest.raises(ConfigError, match="a default remote"):
        DvcRemotes().url_of(None)


@pytest.mark.parametrize("data", [b"\xff", b"url = a\n", b"[core]\n" + b"#" * 70_000])
def test_what_is_no_configuration_is_refused(data):
    with pytest.raises(ConfigError, match=r"\.dvc/config: wanted a configuration"):
        read_remotes(data)

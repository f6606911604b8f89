"""`[source.NAME]` and `[cache]`: what is taken, what is refused and that no password is repeated."""

import pytest

from gangline.spec.config.load import load_text
from gangline.spec.config.problems import FileError
from gangline.spec.config.site import Site

CANARY = "pa55word-of-nobody"


def test_sources_and_cache_are_read():
    site = load_text(
        Site,
        """
[source.hdfs]
url = "webhdfs://alice@namenode:9870/corpora"
credentials = "secret:env:HDFS"
hosts = ["datanode-*.example:9864", "10.0.0.7:9864"]
ranks = true
[source.disk]
url = "file:///data"
[source.bucket]
url = "s3://corpora/text?endpoint=https://minio.example:9000"
[cache]
path = "/nvme/gangline"
bytes = 2e12
""",
        file="site.toml",
    )
    assert site.source["hdfs"].ranks
    assert not site.source["disk"].ranks
    assert site.cache.bytes == 2e12


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("source.Bad_", "[source.Bad_]\nurl = 'file:///a'"),
        ("source.a.url", "[source.a]\nurl = '/data'"),
        ("source.a.url", "[source.a]\nurl = 'file://data'"),
        ("source.a.url", "[source.a]\nurl = 'file:///data/../etc'"),
        ("source.a.url", f"[source.a]\nurl = 'webhdfs://alice:{CANARY}@namenode:9870/'"),
        ("source.a.url", "[source.a]\nurl = 'zip://a::file:///b'"),
        ("source.a.url", "[source.a]\nurl = 'webhdfs://name node/'"),
        ("source.a.credentials", f"[source.a]\nurl = 'file:///a'\ncredentials = '{CANARY}'"),
        ("source.a.hosts[0]", "[source.a]\nurl = 'webhdfs://n:1/'\nhosts = ['datanode']"),
        ("source.a.hosts[0]", "[source.a]\nurl = 'webhdfs://n:1/'\nhosts = ['*:9864']"),
        ("source.a.hosts[1]", "[source.a]\nurl = 'webhdfs://n:1/'\nhosts = ['a:1', 'http://b:1']"),
        ("cache.path", "[cache]\npath = 'cache'"),
        ("cache.path", "[cache]\npath = '/'"),
        ("cache.path", "[cache]\npath = '/a/../b'"),
        ("cache.bytes", "[cache]\npath = '/a'\nbytes = 0"),
    ],
)
def test_what_cannot_work_is_refused_with_its_key(key, text):
    with pytest.raises(FileError) as caught:
        load_text(Site, text, file="site.toml")
    assert [each.key for each in caught.value.problems] == [key]
    assert CANARY not in str(caught.value)

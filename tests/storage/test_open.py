"""What a store URL may say, and how long opening takes."""

import subprocess
import sys

import pytest

from gangline.errors import ConfigError
from gangline.storage.open import open_store

ENDPOINT = "http://127.0.0.1:9000"


@pytest.mark.parametrize(
    ("url", "options", "named"),
    [
        ("/plain/path", {}, "unknown scheme"),
        ("http://host/bucket", {}, "unknown scheme 'http'; use file:PATH or s3://BUCKET/PREFIX"),
        ("file:", {}, "names no folder"),
        ("file:store?endpoint=x", {}, "names no folder"),
        ("s3://bucket", {"credentials": "a:b"}, "wanted store.endpoint with its scheme"),
        ("s3://bucket", {"credentials": "a:b", "endpoint": "host:9000"}, "found 'host:9000'"),
        ("s3://bucket", {"endpoint": ENDPOINT}, "needs credentials"),
        (
            "s3://bucket",
            {"endpoint": "https://bucket.s3.eu-1.amazonaws.com", "credentials": "a:b"},
            "names the bucket; https://s3.eu-1.amazonaws.com works",
        ),
        ("s3:///prefix", {"endpoint": ENDPOINT, "credentials": "a:b"}, "names no bucket"),
        ("s3://key:secret@bucket", {"endpoint": ENDPOINT, "credentials": "a:b"}, "holds credentials"),
        ("s3://bucket", {"endpoint": ENDPOINT, "credentials": "onlyakey"}, "wanted ACCESS_KEY:SECRET_KEY"),
    ],
)
def test_wrong_url_is_refused(url, options, named):
    with pytest.raises(ConfigError, match=named) as refused:
        open_store(url, **options)
    assert "secret@" not in str(refused.value)


def test_url_of_an_s3_store_carries_its_endpoint_and_no_secret():
    store = open_store("s3://bucket/a/b/", endpoint=ENDPOINT, region="eu-1", credentials="key:very-secret")
    assert store.url == "s3://bucket/a/b?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=eu-1"
    again = open_store(store.url, credentials="key:very-secret")
    assert again.url == store.url
    assert again.wire.place == store.wire.place


def test_file_url_may_have_slashes(tmp_path):
    assert open_store(f"file://{tmp_path}").url == open_store(f"file:{tmp_path}").url == f"file:{tmp_path}"


def test_without_minio_the_extra_is_named():
    code = "import sys; sys.modules['minio'] = None\nfrom gangline.storage.open import open_store\nopen_store({!r}, {})"
    code = code.format("s3://b", f"endpoint={ENDPOINT!r}, credentials='a:b'")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ConfigError" in ended.stderr
    assert "pip install gangline[s3]" in ended.stderr


def test_opening_a_folder_imports_no_client():
    code = "import sys; from gangline.storage.open import open_store; open_store('file:x'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"minio", "urllib3", "stamina", "structlog", "torch", "typer", "cattrs"} & set(loaded)

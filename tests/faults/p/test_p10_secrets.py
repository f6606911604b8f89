"""P10: canary values of the signing key, the checkpoint key and store credentials are in nothing that is written."""

import base64
import io
import re
import traceback

import pytest
import structlog
from cryptography.hazmat.primitives import serialization
from tests.registry.passed_run import copy_of, template
from tests.registry.test_promote import point

from gangline.drill.invariants import spellings
from gangline.errors import GanglineError
from gangline.line.results.verification import verify
from gangline.signing.keys import list_keys, signing_key
from gangline.spec.config.site import SignTable, Site
from gangline.storage.open import open_store
from gangline.storage.s3.store import S3Store

pytestmark = pytest.mark.row("P10")
ACCESS, SECRET = "canaryaccess7f3a", "canary-secret-91c4e2d07b"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A workspace that went all the way: publish, promote, verify; with what was said and logged meanwhile."""
    workspace = copy_of(template(tmp_path_factory, "passed")[0], tmp_path_factory.mktemp("canary") / "root")
    said, logged = [], io.StringIO()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(logged))
    try:
        said += [
            repr(workspace.publish()),
            repr(point(workspace)),
            repr(workspace.key),
            repr(list_keys(workspace.site, workspace.environ)),
        ]
        for target in ("bytegpt@production", workspace.checkpoint, workspace.record.run.id):
            said.append(
                repr(
                    verify(
                        target,
                        store=workspace.store,
                        repo=workspace.repo,
                        site=workspace.site,
                        environ=workspace.environ,
                    )
                )
            )
    finally:
        structlog.reset_defaults()
    return workspace, "\n".join([*said, logged.getvalue()]).encode()


def private_values(key):
    """Everything that would give the key away."""
    loaded = serialization.load_pem_private_key(key.private_pem(), None)
    scalar = loaded.private_numbers().private_value.to_bytes(32, "big")
    body = [line.encode() for line in key.private_pem().decode().splitlines() if "-----" not in line]
    values = [scalar, str(int.from_bytes(scalar, "big")).encode(), key.checkpoint_key("bytegpt"), *body[:2]]
    return [each for value in values for each in spellings(value)]


@pytest.mark.row("I6")
def test_the_signing_key_and_what_is_derived_from_it_stand_in_no_file_but_their_own(served):
    workspace, said = served
    wanted = private_values(workspace.key)
    config = workspace.root / "config"
    searched = 0
    for path in sorted(workspace.root.rglob("*")):
        if path.is_file() and config not in path.parents:
            searched += 1
            data = path.read_bytes()
            assert not any(each in data for each in wanted), path
    assert searched > 50
    assert not any(each in said for each in wanted)
    public = config / "gangline" / "keys" / f"{workspace.key.key_id}.pub"
    assert not any(each in public.read_bytes() for each in wanted)


def test_the_search_finds_a_canary_where_there_is_one(served):
    workspace, _ = served
    own = (workspace.root / "config" / "gangline" / "keys" / "local.pem").read_bytes()
    assert any(each in own for each in private_values(workspace.key))


def test_no_key_is_left_in_temporary_folders(served, tmp_path, monkeypatch):
    workspace, _ = served
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    from gangline.registry.folder_signature import sign_folder

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    sign_folder(folder, workspace.key)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["config.json", "model", "model.sig"]


@pytest.mark.parametrize("value", [SECRET, base64.b64encode(SECRET.encode()).decode(), "-----BEGIN X-----\n" + SECRET])
def test_a_key_that_cannot_be_read_is_not_repeated_in_the_message_or_its_traceback(value):
    site = Site(sign=SignTable(key="secret:env:SIGNING"))
    with pytest.raises(GanglineError) as caught:
        signing_key(site, {"SIGNING": value})
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.row("I6")
def test_store_credentials_are_in_no_message_of_a_store_that_is_away():
    store = S3Store(
        bucket="bucket", prefix="p", endpoint="http://127.0.0.1:9", region="here", credentials=f"{ACCESS}:{SECRET}",
        url="s3://bucket/p", deadline_seconds=0.5,
    )  # fmt: skip
    said = [repr(store), store.url]
    with pytest.raises(GanglineError) as caught:
        store.get("key")
    said += traceback.format_exception(caught.value)
    assert not re.search(re.escape(SECRET), "".join(said))


def test_a_secret_in_a_url_is_refused_without_repeating_it():
    with pytest.raises(GanglineError) as caught:
        open_store(f"s3://{ACCESS}:{SECRET}@bucket/p", endpoint="http://127.0.0.1:9")
    assert SECRET not in "".join(traceback.format_exception(caught.value))

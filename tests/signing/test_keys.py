"""Signing keys: made once, closed to others, and what is derived from them tells nothing about them."""

import base64
import stat
import subprocess
import sys

import pytest

from gangline.errors import ConfigError, IntegrityError
from gangline.signing import keys
from gangline.spec.config.site import SignTable, Site


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_first_use_makes_a_key_that_its_owner_alone_may_read(environ):
    key = keys.signing_key(Site(), environ)
    path = keys.key_folder(environ) / keys.LOCAL_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.signing_key(Site(), environ).key_id == key.key_id
    assert sorted(each.name for each in path.parent.iterdir()) == sorted([f"{key.key_id}.pub", keys.LOCAL_NAME])


def test_of_two_processes_that_make_the_first_key_both_get_the_same_one(environ):
    code = (
        "import sys; from gangline.signing import keys; from gangline.spec.config.site import Site\n"
        f"sys.stdin.read(); print(keys.signing_key(Site(), {environ!r}).key_id)"
    )
    racers = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for each in racers:
        each.stdin.close()
    found = {each.stdout.read().strip() for each in racers}
    assert [each.wait() for each in racers] == [0, 0, 0]
    for each in racers:
        each.stdout.close()
    assert len(found) == 1
    assert [path.name for path in keys.key_folder(environ).glob(".*")] == []


def test_a_key_that_others_may_read_is_refused(environ):
    keys.signing_key(Site(), environ)
    path = keys.key_folder(environ) / keys.LOCAL_NAME
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        keys.signing_key(Site(), environ)


def test_the_key_of_the_site_wins_and_its_value_is_in_no_message(environ, tmp_path):
    pem = keys.signing_key(Site(), environ).private_pem().decode()
    environ["SIGN"] = pem
    key = keys.signing_key(Site(sign=SignTable(key="secret:env:SIGN")), {**environ, "XDG_CONFIG_HOME": str(tmp_path)})
    assert key.private_pem().decode() == pem
    assert pem.splitlines()[1] not in repr(key)
    with pytest.raises(ConfigError) as caught:
        keys.signing_key(Site(sign=SignTable(key="secret:env:SIGN")), {"SIGN": "s3cr3t-not-a-key"})
    assert "s3cr3t" not in str(caught.value)


def test_checkpoint_keys_differ_by_project_and_stay_the_same(environ):
    key = keys.signing_key(Site(), environ)
    one, other = key.checkpoint_key("bytegpt"), key.checkpoint_key("digits")
    assert len(one) == 32
    assert one != other
    assert keys.signing_key(Site(), environ).checkpoint_key("bytegpt") == one
    assert one.hex() not in key.private_pem().hex()


def test_a_signature_holds_for_its_bytes_and_its_key_alone(environ, tmp_path):
    key = keys.signing_key(Site(), environ)
    stranger = keys.signing_key(Site(), {"XDG_CONFIG_HOME": str(tmp_path / "other")})
    signature = key.sign(b"alias")
    key.public.verify(signature, b"alias")
    for public, data in ((key.public, b"alias2"), (stranger.public, b"alias")):
        with pytest.raises(IntegrityError):
            public.verify(signature, data)
    with pytest.raises(IntegrityError):
        key.public.verify("no base64 at all!", b"alias")


def test_openssl_agrees_with_our_signature(environ, tmp_path):
    key = keys.signing_key(Site(), environ)
    (tmp_path / "data").write_bytes(b"promoted")
    (tmp_path / "sig").write_bytes(base64.b64decode(key.sign(b"promoted")))
    (tmp_path / "pub").write_bytes(key.public.pem)
    command = ["openssl", "dgst", "-sha256", "-verify", "pub", "-signature", "sig", "data"]
    try:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    assert done.stdout.strip() == "Verified OK", done.stderr


def test_listing_says_who_signs_and_who_is_trusted(environ, tmp_path):
    own = keys.signing_key(Site(), environ)
    friend = keys.signing_key(Site(), {"XDG_CONFIG_HOME": str(tmp_path / "friend")})
    (keys.key_folder(environ) / f"{friend.key_id}.pub").write_bytes(friend.public.pem)
    rows = {row.key_id: (row.own, row.trusted) for row in keys.list_keys(Site(), environ)}
    assert rows == {own.key_id: (True, True), friend.key_id: (False, False)}
    site = Site(sign=SignTable(identities=(friend.key_id, "0badbeef")))
    rows = {row.key_id: (row.own, row.trusted) for row in keys.list_keys(site, environ)}
    assert rows == {own.key_id: (True, False), friend.key_id: (False, True), "0badbeef": (False, True)}


def test_listing_makes_no_key(environ):
    assert keys.list_keys(Site(), environ) == ()
    assert not keys.key_folder(environ).exists()


def test_trust_in_a_key_that_is_not_here_says_where_to_put_it(environ):
    with pytest.raises(ConfigError, match=r"0badbeef\.pub"):
        keys.trusted_keys(Site(sign=SignTable(identities=("0badbeef",))), environ)


def test_a_pod_that_verifies_has_public_keys_alone_and_makes_none(environ, tmp_path):
    own = keys.signing_key(Site(), environ)
    folder = tmp_path / "pod" / "gangline" / "keys"
    folder.mkdir(parents=True)
    (folder / f"{own.key_id}.pub").write_bytes(own.public.pem)
    site = Site(sign=SignTable(identities=(own.key_id,)))
    assert list(keys.trusted_keys(site, {"XDG_CONFIG_HOME": str(tmp_path / "pod")})) == [own.key_id]
    assert [path.name for path in folder.iterdir()] == [f"{own.key_id}.pub"]


def test_a_public_key_under_another_keys_name_is_refused(environ, tmp_path):
    friend = keys.signing_key(Site(), {"XDG_CONFIG_HOME": str(tmp_path / "friend")})
    folder = keys.key_folder(environ)
    folder.mkdir(parents=True)
    (folder / "0badbeef.pub").write_bytes(friend.public.pem)
    with pytest.raises(ConfigError, match=friend.key_id):
        keys.trusted_keys(Site(sign=SignTable(identities=("0badbeef",))), environ)


def test_a_folder_that_cannot_be_written_is_a_clear_error(environ, tmp_path):
    (tmp_path / "config").write_text("a file where a folder should be")
    with pytest.raises(ConfigError, match="XDG_CONFIG_HOME"):
        keys.signing_key(Site(), environ)

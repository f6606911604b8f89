"""Logins of docker's configuration: by entry, by helper, and what is said when neither answers."""

import base64
import json
import os
import sys

import pytest

from gangline.build.image_registry import credentials
from gangline.build.image_registry.credentials import RegistryLogin, find_login
from gangline.errors import ConfigError


def home(folder, config):
    (folder / ".docker").mkdir(exist_ok=True)
    (folder / ".docker/config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return {"HOME": str(folder), "PATH": f"{folder}:{os.environ['PATH']}"}


def helper(folder, text):
    tool = folder / "docker-credential-test"
    tool.write_text(f"#!{sys.executable}\n{text}")
    tool.chmod(0o755)


ENTRY = {"auth": base64.b64encode(b"ana:pa:ss").decode()}


def test_an_entry_gives_user_and_password(tmp_path):
    environ = home(tmp_path, {"auths": {"r.example": ENTRY}})
    assert find_login("r.example", environ) == RegistryLogin("ana", "pa:ss")
    assert find_login("other.example", environ) is None
    assert find_login("r.example", {"HOME": str(tmp_path / "nobody")}) is None


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("https://index.docker.io/v1/", "docker.io"),
        ("https://r.example", "r.example"),
        ("https://r.example/v2/", "r.example"),
    ],
)
def test_other_spellings_of_a_host_are_known(tmp_path, name, host):
    assert find_login(host, home(tmp_path, {"auths": {name: ENTRY}})).user == "ana"


def test_places_are_taken_from_the_environment(tmp_path):
    home(tmp_path, {"auths": {"r.example": ENTRY}})
    assert find_login("r.example", {"DOCKER_CONFIG": str(tmp_path / ".docker")}).user == "ana"
    assert find_login("r.example", {"REGISTRY_AUTH_FILE": str(tmp_path / ".docker/config.json")}).user == "ana"


def test_a_helper_is_asked_for_its_host(tmp_path):
    helper(tmp_path, "import sys, json\nprint(json.dumps({'Username': sys.stdin.read(), 'Secret': sys.argv[1]}))")
    environ = home(tmp_path, {"credHelpers": {"r.example": "test"}})
    assert find_login("r.example", environ) == RegistryLogin("r.example", "get")
    assert find_login("r.example", home(tmp_path, {"credsStore": "test"})) == RegistryLogin("r.example", "get")


def test_a_helper_that_knows_none_means_no_one(tmp_path):
    helper(tmp_path, "print('credentials not found in native keychain'); raise SystemExit(1)")
    assert find_login("r.example", home(tmp_path, {"credsStore": "test"})) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise SystemExit(3)", "ended with 3"),
        ("print('{}')", "Username and Secret"),
        ("print('no json')", "Username and Secret"),
        ("import time; time.sleep(60)", "did not answer"),
    ],
)
def test_a_helper_that_fails_is_named(tmp_path, text, said, monkeypatch):
    monkeypatch.setattr(credentials, "HELPER_SECONDS", 1.5)
    helper(tmp_path, text)
    with pytest.raises(ConfigError, match=said):
        find_login("r.example", home(tmp_path, {"credsStore": "test"}))


@pytest.mark.parametrize("name", ["../../bin/sh", "a b", "a;b", "-x", "", "missing-one"])
def test_a_helper_that_is_not_a_program_is_never_run(tmp_path, name):
    if not name:
        assert find_login("r.example", home(tmp_path, {"credsStore": name})) is None
        return
    with pytest.raises(ConfigError, match="credential"):
        find_login("r.example", home(tmp_path, {"credsStore": name}))


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[]",
        "[" * 100_000,
        {"auths": {"r.example": {"auth": "%%%"}}},
        {"auths": {"r.example": {"identitytoken": "x"}}},
    ],
)
def test_a_configuration_that_cannot_be_read_is_reported_with_its_place(tmp_path, config):
    with pytest.raises(ConfigError, match=r"config\.json"):
        find_login("r.example", home(tmp_path, config))

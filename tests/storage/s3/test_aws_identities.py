"""Roles, profiles and the AWS command as sources of credentials: found, renewed, and never said."""

import os
import stat
import sys
import traceback
from secrets import token_hex

import pytest
from tests.ports import free_port
from tests.storage.s3.aws_answers import POD_TOKEN, TOKEN, Aws, serving

from gangline.errors import StorageError
from gangline.spec.config.site import Site, StoreTable
from gangline.storage.open import open_store
from gangline.storage.s3 import aws_identities
from gangline.storage.s3.aws_identities import AwsIdentity
from gangline.storage.s3.credentials import credential_text
from gangline.storage.site_paths import store_credential_text


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """A machine without any of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{free_port()}")


@pytest.fixture
def aws():
    return Aws()


def instance(monkeypatch, url, _folder):
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)


def web_identity(monkeypatch, url, folder):
    (folder / "token").write_text(TOKEN)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(folder / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/driver")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)


def pod_identity(monkeypatch, url, folder):
    (folder / "token").write_text(POD_TOKEN)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(folder / "token"))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/v1/credentials")


PLACES = (instance, web_identity, pod_identity)


@pytest.mark.parametrize("place", PLACES)
def test_a_role_is_found_where_aws_gives_it(aws, place, monkeypatch, tmp_path):
    with serving(aws) as url:
        place(monkeypatch, url, tmp_path)
        assert credential_text(AwsIdentity("aws:role", os.environ).current()) == "ASIA1:role-secret:role-token"
        site = Site(store=StoreTable(url="s3://b", endpoint="http://127.0.0.1:1", credentials="aws:role"))
        assert store_credential_text(site, os.environ) == "ASIA2:role-secret:role-token"


def test_metadata_are_asked_with_a_session_alone(aws, monkeypatch, tmp_path):
    """IMDSv2: instances refuse requests without one."""
    with serving(aws) as url:
        instance(monkeypatch, url, tmp_path)
        AwsIdentity("aws:role", os.environ).current()
    assert aws.asked[0] == "PUT /latest/api/token"
    assert aws.asked[-1] == "GET /latest/meta-data/iam/security-credentials/trainer"


@pytest.mark.parametrize("place", PLACES)
def test_a_credential_is_renewed_before_it_ends_and_asked_for_once_while_it_lasts(aws, place, monkeypatch, tmp_path):
    with serving(aws) as url:
        place(monkeypatch, url, tmp_path)
        identity = AwsIdentity("aws:role", os.environ)
        assert {identity.current().access_key for _ in range(5)} == {"ASIA1"}
        aws.seconds = aws_identities.RENEW_SECONDS - 60
        assert identity.another(identity.current()).access_key == "ASIA2"
        assert identity.current().access_key == "ASIA2"  # asked for just now
        identity._looked -= aws_identities.LOOK_SECONDS
        assert identity.current().access_key == "ASIA3"


def test_a_source_that_fails_costs_nothing_while_the_credential_lasts(aws, monkeypatch, tmp_path):
    with serving(aws) as url:
        instance(monkeypatch, url, tmp_path)
        aws.seconds = 60
        identity = AwsIdentity("aws:role", os.environ)
        identity.current()
        aws.refuses = True
        identity._looked -= aws_identities.LOOK_SECONDS
        assert identity.current().access_key == "ASIA1"
        identity._found = type(identity._found)("ASIA1", "s", "t", identity._found.expiration.replace(year=2020))
        with pytest.raises(StorageError, match="found status 403; run where AWS gives a role"):
            identity.current()


def test_no_message_and_no_traceback_holds_the_token_of_a_web_identity(aws, monkeypatch, tmp_path):
    with serving(aws) as url:
        web_identity(monkeypatch, url, tmp_path)
        aws.refuses = True
        with pytest.raises(
            StorageError, match="aws:role: wanted the credentials of a role, found status 403"
        ) as refused:
            AwsIdentity("aws:role", os.environ).current()
    assert TOKEN not in "".join(traceback.format_exception(refused.value))


def test_a_machine_without_a_role_says_where_one_is(tmp_path):
    with pytest.raises(StorageError, match="AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN"):
        AwsIdentity("aws:role", os.environ).current()


def test_keys_of_a_profile_are_read_again_when_they_change(tmp_path):
    file = tmp_path / ".aws" / "credentials"
    file.parent.mkdir()
    file.write_text("[lab]\naws_access_key_id = AKIA1\naws_secret_access_key = s1\n")
    identity = AwsIdentity("aws:profile:lab", os.environ)
    assert credential_text(identity.current()) == "AKIA1:s1"
    assert identity.another(identity.current()) is None
    file.write_text("[lab]\naws_access_key_id = ASIA2\naws_secret_access_key = s2\naws_session_token = t2\n")
    assert credential_text(identity.another(identity.current())) == "ASIA2:s2:t2"
    with pytest.raises(StorageError, match="for SSO and roles write aws:cli:none"):
        AwsIdentity("aws:profile:none", os.environ).current()


def command(folder, text):
    program = folder / "bin" / "aws"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!{sys.executable}\nimport sys\n{text}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": str(program.parent)}


SAYS = """
assert sys.argv[1:] == ["configure", "export-credentials", "--format", "process", "--profile", "lab"], sys.argv
print('{"Version": 1, "AccessKeyId": "ASIA7", "SecretAccessKey": "s7", "SessionToken": "t7",'
      ' "Expiration": "2099-01-01T00:00:00+00:00"}')
"""


def test_the_aws_command_gives_what_a_session_of_a_person_has(tmp_path, monkeypatch):
    environ = command(tmp_path, SAYS)
    monkeypatch.setenv("PATH", environ["PATH"])
    assert credential_text(AwsIdentity("aws:cli:lab", environ).current()) == "ASIA7:s7:t7"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sys.exit('Error when retrieving token from sso: Token has expired')", "Token has expired; sign in"),
        ("print('{}')", "found: KeyError"),
        ("print('nothing')", "found: JSONDecodeError"),
    ],
)
def test_a_command_that_fails_says_why(tmp_path, monkeypatch, text, found):
    environ = command(tmp_path, text)
    monkeypatch.setenv("PATH", environ["PATH"])
    with pytest.raises(StorageError, match=found):
        AwsIdentity("aws:cli:lab", environ).current()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StorageError, match="no program aws on the PATH"):
        AwsIdentity("aws:cli", {"PATH": str(tmp_path)}).current()


@pytest.mark.tools
def test_a_store_goes_on_when_its_credential_has_ended_early(minio_server, tmp_path):
    """The server refuses, the source is asked, and the request is sent once more."""
    file = tmp_path / ".aws" / "credentials"
    file.parent.mkdir()

    def keys(secret):
        return f"[lab]\naws_access_key_id = {minio_server.access_key}\naws_secret_access_key = {secret}\n"

    file.write_text(keys(minio_server.secret_key))
    store = open_store(
        f"s3://{minio_server.bucket}/{token_hex(4)}", endpoint=f"{minio_server.endpoint}/",
        credentials=AwsIdentity("aws:profile:lab", os.environ),
    )  # fmt: skip
    store.put("a", b"1")
    store.wire._credentials._found = type(store.wire.credentials())("ASIAENDED", "s", None)
    assert store.get("a").data == b"1"

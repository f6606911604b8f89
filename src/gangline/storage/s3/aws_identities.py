"""Credentials of AWS as machines and people have them, renewed before they end: `store.credentials = "aws:role"`.

    aws:role                the role of a pod or machine, as the environment says: a web identity (IAM roles for service
                            accounts), a container (ECS, EKS Pod Identity), else the instance (IMDSv2)
    aws:profile:NAME        keys of a profile in `~/.aws/credentials`
    aws:cli, aws:cli:NAME   what `aws configure export-credentials` says of a profile: SSO, assumed roles, processes

The package `minio` knows the first two. A credential that comes from here is never written into a record.
"""

import json
import re
import subprocess
import threading
import time
from collections.abc import Mapping
from configparser import Error as ConfigParserError
from datetime import UTC, datetime
from math import inf

from minio.credentials.credentials import Credentials
from minio.credentials.providers import AWSConfigProvider, IamAwsProvider, Provider

from gangline.errors import StorageError
from gangline.http.client import HttpClient, TimeLimits, library_failures
from gangline.http.retry import RequestFailed
from gangline.storage.s3.credentials import credential_text

RENEW_SECONDS = 900.0
"""A credential that ends sooner is replaced: gangs get theirs every 5 minutes and work with it until the next."""
LOOK_SECONDS = 60.0
"""Pause between two requests to the source, and age at which a credential without an end is read again."""
_LEAST_SECONDS = 10.0
"""Less is as good as none."""
_LIMITS = TimeLimits(connect_seconds=2, silence_seconds=10)
_CLI_SECONDS = 60.0
_ROLE_NEEDS = (
    "run where AWS gives a role: a pod of a service account with one (AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN), a "
    "task or pod with AWS_CONTAINER_CREDENTIALS_*, an instance with a role whose metadata may be reached from here"
)


class AwsIdentity:
    """A `CredentialSource` that renews itself; may be used by several threads.

    Args:
        form: `aws:role`, `aws:profile:NAME`, `aws:cli` or `aws:cli:NAME`.
        environ: Variables of this process, which `minio` reads by itself, too; the AWS command gets them.
    """

    def __init__(self, form: str, environ: Mapping[str, str]) -> None:
        self._form = form
        self._environ = environ
        self._lock = threading.Lock()
        self._found: Credentials | None = None
        self._looked = -LOOK_SECONDS

    def current(self) -> Credentials:
        """The credential of now; where its source fails, the one before as long as it lasts.

        Raises:
            StorageError: There is none.
        """
        with self._lock:
            if self._is_due():
                self._renew()
            assert self._found is not None, "a first look finds one, or raises"
            return self._found

    def another(self, refused: Credentials, /) -> Credentials | None:
        """A different one than `refused`, asked of the source now; None: it has none."""
        with self._lock:
            if self._found is None or credential_text(self._found) == credential_text(refused):
                self._renew()
            found = self._found
        return found if found is not None and credential_text(found) != credential_text(refused) else None

    def _is_due(self) -> bool:
        if self._found is None or _left_seconds(self._found) < _LEAST_SECONDS:
            return True
        is_old = time.monotonic() - self._looked >= LOOK_SECONDS
        return is_old and (self._found.expiration is None or _left_seconds(self._found) < RENEW_SECONDS)

    def _renew(self) -> None:
        self._looked = time.monotonic()
        try:
            self._found = self._fetch()
        except StorageError:
            if self._found is None or _left_seconds(self._found) < _LEAST_SECONDS:
                raise

    def _fetch(self) -> Credentials:
        _, kind, *name = self._form.split(":", 2)
        if kind == "cli":
            return _from_command(name, self._environ)
        try:
            with library_failures():
                return _provider(kind, name, self._environ).retrieve()
        except (RequestFailed, ConfigParserError, ValueError, KeyError, TypeError, OSError, SyntaxError) as error:
            raise self._refused(kind, error) from None  # its text may hold the token of a web identity

    def _refused(self, kind: str, error: Exception) -> StorageError:
        if kind == "profile":
            return StorageError(
                f"store.credentials {self._form}: wanted its keys in ~/.aws/credentials, found none; for SSO and roles "
                f"write {self._form.replace('profile', 'cli', 1)}"
            )
        status = re.search(r"HTTP status code (\d{3})", str(error))
        name = f"status {status[1]}" if status else type(error).__name__
        return StorageError(
            f"store.credentials {self._form}: wanted the credentials of a role, found {name}; {_ROLE_NEEDS}"
        )


def _provider(kind: str, name: list[str], environ: Mapping[str, str]) -> Provider:
    if kind == "profile":
        return AWSConfigProvider(profile=name[0])
    is_web = bool(environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"))
    is_container = any(environ.get(f"AWS_CONTAINER_CREDENTIALS_{each}_URI") for each in ("RELATIVE", "FULL"))
    variable = "AWS_ENDPOINT_URL_STS" if is_web else "AWS_EC2_METADATA_SERVICE_ENDPOINT"
    return IamAwsProvider(
        custom_endpoint=None if is_container and not is_web else environ.get(variable),
        http_client=HttpClient(limits=_LIMITS).pool,
    )


def _from_command(name: list[str], environ: Mapping[str, str]) -> Credentials:
    command = ["aws", "configure", "export-credentials", "--format", "process"]
    command += ["--profile", *name] if name else []
    try:
        done = subprocess.run(
            command, env={**environ}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=_CLI_SECONDS,
        )  # fmt: skip
        plain = json.loads(done.stdout) if done.returncode == 0 else None
        if plain is not None:
            end = plain.get("Expiration")
            return Credentials(
                plain["AccessKeyId"], plain["SecretAccessKey"], plain.get("SessionToken"),
                datetime.fromisoformat(end) if end else None,
            )  # fmt: skip
        found = " ".join(done.stderr.split())[-300:] or f"exit {done.returncode}"
    except FileNotFoundError:
        found = "no program aws on the PATH"
    except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError, AttributeError) as error:
        found = type(error).__name__
    raise StorageError(
        f"store.credentials aws:cli: wanted the credentials that `{' '.join(command)}` prints, found: {found}; "
        "sign in (aws sso login) or choose another profile"
    )


def _left_seconds(found: Credentials) -> float:
    """Seconds until its end, which `minio` holds in UTC without saying so; infinite without one."""
    if found.expiration is None:
        return inf
    return (found.expiration.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()

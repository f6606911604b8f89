"""A store whose server lends credentials of three parts that end, and counts what comes with parts of two of them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

from minio.credentials.credentials import Credentials
from minio.signer import sign_v4_s3

from gangline.faults.s3_gateway import BUCKET, S3Gateway, S3Request, S3Response, refusal
from gangline.storage.objects.protocol import ObjectStore


@dataclass(frozen=True)
class Issued:
    """One credential that the server gave."""

    number: int

    @property
    def text(self) -> str:
        return f"access{self.number}:secret-of-{self.number}:token-of-{self.number}"


class IssuingGateway(S3Gateway):
    """Knows every credential that it issued, until `end`; signatures are checked as S3 does."""

    def __init__(self, store: ObjectStore, *, code: str = "ExpiredToken", status: int = 403) -> None:
        super().__init__(store)
        self._refusal = status, code
        self._ended: set[int] = set()
        self._count = threading.Lock()
        self.issued: list[Issued] = []
        self.mixed: list[str] = []
        """Requests whose parts were of different credentials."""
        self.answered: list[tuple[str, int]] = []
        """Method and number of the credential of each request that was let in."""
        self.refused: list[tuple[str, int]] = []
        self.before: Callable[[int], None] = lambda number: None
        """Called with the number of its credential before a request is judged."""

    def issue(self) -> str:
        with self._count:
            self.issued.append(Issued(len(self.issued)))
            return self.issued[-1].text

    def end(self, *numbers: int) -> None:
        self._ended |= set(numbers)

    def replace(self, file: Path) -> None:
        """Put another credential into `file` as keepers and kubelets do: by rename."""
        another = file.with_name("another")
        another.write_text(self.issue())
        another.replace(file)

    def is_authenticated(self, authorization: str) -> bool:
        return "Credential=access" in authorization

    def answer(self, request: S3Request) -> S3Response:
        said = request.headers["authorization"]
        number = int(said.partition("Credential=access")[2].partition("/")[0])
        if request.headers.get("x-amz-security-token") != f"token-of-{number}" or not _is_signed(request, number):
            self.mixed.append(said)
            return refusal(403, "SignatureDoesNotMatch")
        self.before(number)
        if number in self._ended:
            self.refused.append((request.method, number))
            return refusal(*self._refusal)
        self.answered.append((request.method, number))
        return super().answer(request)


def _is_signed(request: S3Request, number: int) -> bool:
    """Is the signature made with the secret of this number?"""
    authorization = request.headers["authorization"]
    names = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(request.query.items()))
    path = f"/{BUCKET}" + (f"/{quote(request.key)}" if request.key else "")
    url = urlsplit(f"http://{request.headers['host']}{path}" + (f"?{query}" if query else ""))
    date = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    made = sign_v4_s3(
        method=request.method,
        url=url,
        region="us-east-1",
        headers={name: request.headers[name] for name in names},
        credentials=Credentials(f"access{number}", f"secret-of-{number}", f"token-of-{number}"),
        content_sha256=request.headers["x-amz-content-sha256"],
        date=date,
    )
    return made["Authorization"] == authorization

"""S3 as somebody speaks it who means harm: signed well, but paths, queries and headers as they come to mind."""

import hashlib
import http.client
import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode, urlsplit

from minio.credentials.credentials import Credentials
from minio.signer import post_presign_v4, presign_v4, sign_v4_s3, sign_v4_sts

REGION = "us-east-1"


@dataclass(frozen=True)
class Attempt:
    """One request; `path` is sent as it is, below the server's root."""

    what: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    signed: str = "header"
    """`header`, `url` for a presigned one, `form` where the body is, `sts` for the service of that name."""


class Sender:
    """Sends attempts, signed with one credential."""

    def __init__(self, port: int, credentials: str) -> None:
        access_key, secret_key, *token = credentials.split(":")
        self._credentials = Credentials(access_key, secret_key, token[0] if token else None)
        self._host = f"127.0.0.1:{port}"

    def send(self, attempt: Attempt) -> tuple[int, bytes]:
        text = urlencode(sorted(attempt.query.items()), quote_via=quote)
        target = attempt.path + (f"?{text}" if text else "")
        headers = {"Host": self._host, **attempt.headers}
        if attempt.signed == "url":
            target = self._presigned(attempt.method, target)
        elif attempt.signed != "form":
            headers = self._signed(attempt, target, headers)
        connection = http.client.HTTPConnection(self._host, timeout=20)
        try:
            connection.request(attempt.method, target, body=attempt.body or None, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _signed(self, attempt: Attempt, target: str, headers: dict[str, str]) -> dict[str, str]:
        now, digest = datetime.now(UTC), hashlib.sha256(attempt.body).hexdigest()
        headers |= {"x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"), "x-amz-content-sha256": digest}
        if self._credentials.session_token:
            headers["X-Amz-Security-Token"] = self._credentials.session_token
        sign = sign_v4_sts if attempt.signed == "sts" else sign_v4_s3
        made = sign(
            method=attempt.method, url=urlsplit(f"http://{self._host}{target}"), region=REGION, headers=headers,
            credentials=self._credentials, content_sha256=digest, date=now,
        )  # fmt: skip
        return {name: str(value) for name, value in made.items()}

    def _presigned(self, method: str, target: str) -> str:
        url = urlsplit(f"http://{self._host}{target}")
        if self._credentials.session_token:
            more = f"X-Amz-Security-Token={quote(self._credentials.session_token, safe='')}"
            url = url._replace(query=f"{url.query}&{more}" if url.query else more)
        made = presign_v4(
            method=method, url=url, region=REGION, credentials=self._credentials, date=datetime.now(UTC), expires=600
        )
        return f"{made.path}?{made.query}"


def form_upload(credentials: str, bucket: str, key: str) -> tuple[dict[str, str], bytes]:
    """Headers and body of a browser's upload to `key`, with a policy that its sender signed."""
    access_key, secret_key, *token = credentials.split(":")
    now = datetime.now(UTC)
    date, scope = now.strftime("%Y%m%dT%H%M%SZ"), f"{now:%Y%m%d}/{REGION}/s3/aws4_request"
    fields = {
        "key": key, "x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-credential": f"{access_key}/{scope}",
        "x-amz-date": date, **({"x-amz-security-token": token[0]} if token else {}),
    }  # fmt: skip
    ends = (now + timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [{"bucket": bucket}, *({name: value} for name, value in fields.items())]
    fields["policy"] = b64encode(json.dumps({"expiration": ends, "conditions": conditions}).encode()).decode()
    fields["x-amz-signature"] = post_presign_v4(data=fields["policy"], secret_key=secret_key, date=now, region=REGION)
    parts = [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in fields.items()]
    file = '--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nforged\r\n--b--\r\n'
    return {"Content-Type": "multipart/form-data; boundary=b"}, ("".join(parts) + file).encode()

"""The addresses that give roles on AWS, with answers as its documentation shows them: a stand-in at that border."""

import http.server
import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

from tests.loopback import listening

TOKEN = "eyJhbGciOiJSUzI1NiJ9.web-identity"
POD_TOKEN = "eyJhbGciOiJSUzI1NiJ9.pod-identity"
_STS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><SubjectFromWebIdentityToken>system:serviceaccount:gangs:driver</SubjectFromWebIdentityToken>
<Audience>sts.amazonaws.com</Audience><AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/driver/s</Arn>
<AssumedRoleId>AROA:s</AssumedRoleId></AssumedRoleUser><Credentials><SessionToken>{token}</SessionToken>
<SecretAccessKey>{secret}</SecretAccessKey><Expiration>{end}</Expiration><AccessKeyId>{key}</AccessKeyId></Credentials>
</AssumeRoleWithWebIdentityResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>
</AssumeRoleWithWebIdentityResponse>"""


class Aws:
    """Gives the key `ASIA<n>` at its n-th answer, for `seconds`."""

    def __init__(self) -> None:
        self.seconds = 3600.0
        self.given = 0
        self.asked: list[str] = []
        self.refuses = False

    def answer(self, method: str, target: str, headers) -> tuple[int, str]:
        """Status and body; a request without what the real address asks for is refused."""
        url = urlsplit(target)
        self.asked.append(f"{method} {url.path}")
        if self.refuses:
            return 403, ""
        if url.path == "/latest/api/token":
            is_v2 = method == "PUT" and headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            return (200, "imds-session") if is_v2 else (405, "")
        if url.path.startswith("/latest/meta-data/"):
            if headers.get("X-aws-ec2-metadata-token") != "imds-session":
                return 401, ""
            return (200, "trainer") if url.path.endswith("/") else (200, self._document())
        if url.path in ("/v2/credentials/abc", "/v1/credentials"):
            allowed = url.path != "/v1/credentials" or headers.get("Authorization") == POD_TOKEN
            return (200, self._document()) if allowed else (401, "")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if query.get("Action") != "AssumeRoleWithWebIdentity" or query.get("WebIdentityToken") != TOKEN:
            return 400, "<ErrorResponse/>"
        return 200, _STS.format(**self._made())

    def _made(self) -> dict[str, str]:
        self.given += 1
        end = datetime.now(UTC) + timedelta(seconds=self.seconds)
        return {
            "key": f"ASIA{self.given}", "secret": "role-secret", "token": "role-token",
            "end": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }  # fmt: skip

    def _document(self) -> str:
        made = self._made()
        return json.dumps(
            {
                "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": made["end"], "AccessKeyId": made["key"],
                "SecretAccessKey": made["secret"], "Token": made["token"], "Expiration": made["end"],
            }
        )  # fmt: skip


@contextmanager
def serving(aws: Aws):
    """Its address."""

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = aws.answer(self.command, self.path, self.headers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        do_PUT = do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    with listening(Answers) as url:
        yield url

"""Small wheels and an index of them on loopback, as pip reads it; files can be swapped for others."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.loopback import listening


def make_wheel(
    name: str,
    version: str,
    *,
    body: str = "",
    script: bool = False,
    files: dict[str, str] | None = None,
    tag: str = "py3-none-any",
) -> tuple[str, bytes]:
    """File name and bytes of a wheel with one module."""
    info = f"{name}-{version}.dist-info"
    files = (files or {}) | {
        f"{name}/__init__.py": f"VERSION = {version!r}\n{body}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    if script:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{name} = {name}:main\n"
    rows = [f"{path},sha256={_record_hash(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return f"{name}-{version}-{tag}.whl", out.getvalue()


def lock_of(*wheels: tuple[str, bytes]) -> bytes:
    """Requirements with the hashes of `wheels`."""
    lines = []
    for file, data in wheels:
        name, version = file.split("-")[:2]
        lines.append(f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(data).hexdigest()}\n")
    return "".join(lines).encode()


class Index:
    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.logins: set[str] = set()

    def add(self, *wheels: tuple[str, bytes]) -> None:
        self.files.update(wheels)

    @property
    def environ(self) -> dict[str, str]:
        """For pip and uv, with nothing else to find wheels in."""
        simple = f"{self.url}/simple"
        return {"PIP_INDEX_URL": simple, "PIP_CONFIG_FILE": "/dev/null", "UV_DEFAULT_INDEX": simple}


@contextmanager
def index() -> Iterator[Index]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            served.asked.append(self.path)
            served.logins.add(base64.b64decode(self.headers.get("Authorization", "").partition(" ")[2]).decode())
            kind, data = _answer(served, self.path)
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    with listening(Handler) as url:
        served = Index(url)
        yield served


def _answer(served: Index, path: str) -> tuple[str | None, bytes]:
    kind, _, name = path.strip("/").partition("/")
    if kind == "simple":
        links = [f'<a href="/files/{file}">{file}</a>' for file in served.files if file.split("-")[0] == name]
        return "text/html", f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
    found = served.files.get(name)
    return ("application/octet-stream" if found is not None else None), found or b""


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()

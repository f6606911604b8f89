"""GitHub's and GitLab's routes as their documentation describes them, over one small world, on a loopback port.

It also misbehaves on demand: `fail(...)` queues answers that come before the world is asked.
"""

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

BOT, STRANGER = 7, 8
"""Ids of our account and of somebody else's."""


@dataclass
class World:
    """What stands on the forge."""

    repository: str = "team/tiny"
    branches: dict[str, str] = field(default_factory=dict)
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    statuses: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    files: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """(old, new) path."""
    ids: Any = field(default_factory=lambda: count(1))


@dataclass
class Failure:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"message": "no"}'
    seconds_a_byte: float = 0.0


class Stub:
    """A server of `kind`, with the requests that it saw."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.world = World()
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.failures: list[Failure] = []
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def fail(self, *failures: Failure) -> None:
        self.failures += failures

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any, bool]:
        """(status, JSON, is there a next page)."""
        routes = _GITHUB if self.kind == "github" else _GITLAB
        for verb, pattern, function in routes:
            match = re.fullmatch(pattern, path)
            if match and verb == method:
                groups = {name: unquote(value) for name, value in match.groupdict().items()}
                if groups.pop("repo", self.world.repository) != self.world.repository:
                    break
                status, data = function(self.world, body, **groups)
                if isinstance(data, list) and method == "GET":
                    size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
                    return status, data[(page - 1) * size : page * size], page * size < len(data)
                return status, data, False
        return 404, {"message": "Not Found"}, False


def _handler(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            parts = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            stub.seen.append((self.command, self.path, dict(self.headers.items()), raw))
            with stub.lock:
                if stub.failures:
                    self._fail(stub.failures.pop(0))
                    return
                path = re.sub(r"^/api/v[34]", "", parts.path)
                body = json.loads(raw) if raw else None
                status, data, more = stub.answer(self.command, path, dict(parse_qsl(parts.query)), body)
            headers = {"Link": '<http://decoy.example/next>; rel="next"'} if more else {}
            self._send(status, headers, b"" if data is None else json.dumps(data).encode())

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _any  # noqa: N815  # names that the library calls

        def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _fail(self, failure: Failure) -> None:
            if not failure.seconds_a_byte:
                self._send(failure.status, failure.headers, failure.body)
                return
            self.send_response(failure.status)
            self.send_header("Content-Length", str(len(failure.body)))
            self.end_headers()
            for byte in failure.body:
                threading.Event().wait(failure.seconds_a_byte)
                try:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                except OSError:
                    return

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler


# GitHub


def _ref(world: World, _body: Any, branch: str) -> tuple[int, Any]:
    sha = world.branches.get(branch)
    found = {"ref": f"refs/heads/{branch}", "object": {"type": "commit", "sha": sha}}
    return (200, found) if sha else (404, {"message": "Not Found"})


def _branches(world: World, _body: Any) -> tuple[int, Any]:
    return 200, [{"name": name, "commit": {"sha": sha}} for name, sha in sorted(world.branches.items())]


def _github_pull(world: World, number: int) -> dict[str, Any]:
    pull = world.pulls[number]
    source = {"full_name": "stranger/tiny" if pull["fork"] else world.repository}
    return {
        "number": number,
        "state": pull["state"],
        "head": {"sha": pull["sha"], "ref": pull["branch"], "repo": source},
        "base": {"ref": "main", "repo": {"full_name": world.repository}},
    }


def _pull(world: World, _body: Any, number: str) -> tuple[int, Any]:
    known = int(number) in world.pulls
    return (200, _github_pull(world, int(number))) if known else (404, {"message": "Not Found"})


def _pulls(world: World, _body: Any) -> tuple[int, Any]:
    return 200, [_github_pull(world, n) for n, pull in world.pulls.items() if pull["state"] == "open"]


def _status(world: World, body: Any, sha: str) -> tuple[int, Any]:
    world.statuses.append((sha, {"context": body["context"], "state": body["state"], "said": body["description"]}))
    return 201, {}


def _files(world: World, _body: Any, number: str) -> tuple[int, Any]:
    rows = world.files.get(int(number), [])
    return 200, [{"filename": new, **({"previous_filename": old} if old != new else {})} for old, new in rows]


def _github_comment(each: dict[str, Any]) -> dict[str, Any]:
    url = f"https://github.example/team/tiny/pull/1#issuecomment-{each['id']}"
    return {"id": each["id"], "body": each["body"], "user": {"id": each["author"]}, "html_url": url}


def _issue_comments(world: World, _body: Any, number: str) -> tuple[int, Any]:
    return 200, [_github_comment(each) for each in world.comments.values() if each["pull"] == int(number)]


def _add_comment(world: World, body: Any, number: str, author: int = BOT) -> tuple[int, Any]:
    made = {"id": next(world.ids), "pull": int(number), "author": author, "body": body["body"]}
    world.comments[made["id"]] = made
    return 201, _github_comment(made)


def _edit_comment(world: World, body: Any, comment: str) -> tuple[int, Any]:
    if int(comment) not in world.comments:
        return 404, {"message": "Not Found"}
    world.comments[int(comment)]["body"] = body["body"]
    return 200, _github_comment(world.comments[int(comment)])


def _drop_comment(world: World, _body: Any, comment: str) -> tuple[int, Any]:
    return (204, None) if world.comments.pop(int(comment), None) else (404, {"message": "Not Found"})


def _user(_world: World, _body: Any) -> tuple[int, Any]:
    return 200, {"id": BOT, "login": "bot"}


def _repo(world: World, _body: Any) -> tuple[int, Any]:
    return 200, {"id": 3, "full_name": world.repository, "path_with_namespace": world.repository}


_REPO = "/repos/(?P<repo>[^/]+/[^/]+)"
_GITHUB = (
    ("GET", "/user", _user),
    ("GET", _REPO, _repo),
    ("GET", f"{_REPO}/git/ref/heads/(?P<branch>.+)", _ref),
    ("GET", f"{_REPO}/branches", _branches),
    ("GET", rf"{_REPO}/pulls/(?P<number>\d+)", _pull),
    ("GET", f"{_REPO}/pulls", _pulls),
    ("GET", rf"{_REPO}/pulls/(?P<number>\d+)/files", _files),
    ("POST", f"{_REPO}/statuses/(?P<sha>[^/]+)", _status),
    ("GET", rf"{_REPO}/issues/(?P<number>\d+)/comments", _issue_comments),
    ("POST", rf"{_REPO}/issues/(?P<number>\d+)/comments", _add_comment),
    ("PATCH", rf"{_REPO}/issues/comments/(?P<comment>\d+)", _edit_comment),
    ("DELETE", rf"{_REPO}/issues/comments/(?P<comment>\d+)", _drop_comment),
)

# GitLab


def _lab_branch(world: World, _body: Any, branch: str) -> tuple[int, Any]:
    sha = world.branches.get(branch)
    return (200, {"name": branch, "commit": {"id": sha}}) if sha else (404, {"message": "404 Branch Not Found"})


def _lab_branches(world: World, _body: Any) -> tuple[int, Any]:
    return 200, [{"name": name, "commit": {"id": sha}} for name, sha in sorted(world.branches.items())]


def _lab_merge(world: World, number: int) -> dict[str, Any]:
    pull = world.pulls[number]
    return {
        "iid": number,
        "state": {"open": "opened"}.get(pull["state"], pull["state"]),
        "sha": pull["sha"],
        "source_branch": pull["branch"],
        "target_branch": "main",
        "source_project_id": 99 if pull["fork"] else 3,
        "target_project_id": 3,
    }


def _merge(world: World, _body: Any, number: str) -> tuple[int, Any]:
    known = int(number) in world.pulls
    return (200, _lab_merge(world, int(number))) if known else (404, {"message": "404 Not found"})


def _merges(world: World, _body: Any) -> tuple[int, Any]:
    return 200, [_lab_merge(world, n) for n, pull in world.pulls.items() if pull["state"] == "open"]


def _diffs(world: World, _body: Any, number: str) -> tuple[int, Any]:
    return 200, [{"old_path": old, "new_path": new} for old, new in world.files.get(int(number), [])]


def _lab_status(world: World, body: Any, sha: str) -> tuple[int, Any]:
    before = [s for commit, s in world.statuses if commit == sha and s["context"] == body["name"]]
    back = {"running": "pending", "failed": "failure"}
    state = back.get(body["state"], body["state"])
    if before and before[-1]["state"] == state:
        return 400, {"message": f"Cannot transition status via :run from :{body['state']}"}
    world.statuses.append((sha, {"context": body["name"], "state": state, "said": body["description"]}))
    return 201, {}


def _note(each: dict[str, Any]) -> dict[str, Any]:
    return {"id": each["id"], "body": each["body"], "author": {"id": each["author"]}}


def _notes(world: World, _body: Any, number: str) -> tuple[int, Any]:
    return 200, [_note(each) for each in world.comments.values() if each["pull"] == int(number)]


def _add_note(world: World, body: Any, number: str) -> tuple[int, Any]:
    made = {"id": next(world.ids), "pull": int(number), "author": BOT, "body": body["body"]}
    world.comments[made["id"]] = made
    return 201, _note(made)


def _edit_note(world: World, body: Any, number: str, comment: str) -> tuple[int, Any]:
    status, _ = _edit_comment(world, body, comment)
    return (200, _note(world.comments[int(comment)])) if status == 200 else (404, {"message": "404 Not found"})


def _drop_note(world: World, body: Any, number: str, comment: str) -> tuple[int, Any]:
    return _drop_comment(world, body, comment)


_PROJECT = "/projects/(?P<repo>[^/]+)"
_MERGE = rf"{_PROJECT}/merge_requests/(?P<number>\d+)"
_GITLAB = (
    ("GET", "/user", _user),
    ("GET", _PROJECT, _repo),
    ("GET", f"{_PROJECT}/repository/branches/(?P<branch>[^/]+)", _lab_branch),
    ("GET", f"{_PROJECT}/repository/branches", _lab_branches),
    ("GET", _MERGE, _merge),
    ("GET", f"{_PROJECT}/merge_requests", _merges),
    ("GET", f"{_MERGE}/diffs", _diffs),
    ("POST", f"{_PROJECT}/statuses/(?P<sha>[^/]+)", _lab_status),
    ("GET", f"{_MERGE}/notes", _notes),
    ("POST", f"{_MERGE}/notes", _add_note),
    ("PUT", rf"{_MERGE}/notes/(?P<comment>\d+)", _edit_note),
    ("DELETE", rf"{_MERGE}/notes/(?P<comment>\d+)", _drop_note),
)

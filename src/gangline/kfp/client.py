"""Client of a pipelines server, by names: experiment, version, run; each is looked up before it is created.

The server has no idempotency key, so a look-up decides after a lost response: a missing answer means that the request
may have been carried out. Reads are retried, creating is left to callers, which look first. Names may exist twice:
the oldest counts. A server leaves some states out.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, cast, get_args
from urllib.parse import urlencode, urlsplit

from gangline.errors import ConfigError, StorageError, UsageError
from gangline.http.client import BodyTooLarge, HttpClient, HttpResponse, TimeLimits, multipart_form
from gangline.http.connections import checked
from gangline.http.retry import Deadline, NoAnswer, OutcomeUnknown, TlsFailed, retry

ROOT = "/apis/v2beta1"
_AGAIN = (408, 429, 500, 502, 503, 504)
_MOST_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class KfpHttp:
    """The API of one pipelines server."""

    endpoint: str
    token: Callable[[], str | None]
    """Asked before each request: tokens are renewed."""
    deadline_seconds: float = 60.0
    """Time limit of one call, all its tries together."""
    request_seconds: float = 20.0
    """Time limit of one try."""

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Read, again until the deadline.

        Raises:
            StorageError: No answer in time.
        """
        return self.with_retries(lambda: self.request("GET", path, query=query))

    def with_retries(self, attempt: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Call `attempt` until it is answered, also after a request whose outcome is unknown.

        Raises:
            StorageError: No answer within the deadline.
        """
        tries = 0

        def counted() -> dict[str, Any]:
            nonlocal tries
            tries += 1
            return attempt()

        try:
            return retry(counted, deadline=Deadline(self.deadline_seconds))
        except NoAnswer as error:
            raise StorageError(
                f"{self.endpoint}: no answer in {self.deadline_seconds:.0f} s and {tries} tries, the last:"
                f" {error}; is the server up? The same command resumes the run"
            ) from error

    def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None,
        file: bytes | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """One request.

        Raises:
            NoAnswer: There was no response, or one that allows another try; the outcome of the request is unknown.
            UsageError: There is no such thing.
            ConfigError: Refused, with the server's words.
        """
        url = f"{self.endpoint.rstrip('/')}{ROOT}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = self._send(method, url, body, file, max_bytes=_MOST_BYTES)
        except BodyTooLarge as error:
            raise ConfigError(f"{method} {path}: wanted an answer below {_MOST_BYTES} bytes, found more") from error
        return _read(method, path, answer)

    def text(self, path: str) -> str:
        """The answer to one request for a text, its last 32 MiB.

        Raises:
            NoAnswer: None came, or another status than 200.
        """
        answer = self._send("GET", f"{self.endpoint.rstrip('/')}{path}", None, None)
        if answer.status != 200:
            raise OutcomeUnknown(f"GET {path}: HTTP {answer.status}")
        return answer.data[-_MOST_BYTES:].decode(errors="replace")

    def _send(
        self, method: str, url: str, body: Any, file: bytes | None, *, max_bytes: int | None = None
    ) -> HttpResponse:
        headers = {"Accept": "application/json"}
        if token := self.token():
            headers["Authorization"] = f"Bearer {token}"
        data: bytes | None = None
        if file is not None:
            data, headers["Content-Type"] = multipart_form("uploadfile", "pipeline.yaml", file, "application/yaml")
        elif body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        client = HttpClient(
            checked(urlsplit(url).hostname or "", named_by_site=True),
            limits=TimeLimits(connect_seconds=self.request_seconds, silence_seconds=self.request_seconds),
        )
        try:
            return client.request(method, url, headers=headers, body=data, max_bytes=max_bytes)
        except TlsFailed as error:
            raise StorageError(f"{self.endpoint}: TLS failed ({error}); see kfp.endpoint") from error
        finally:
            client.close()


def _read(method: str, path: str, response: HttpResponse) -> dict[str, Any]:
    status = response.status
    if status in _AGAIN:
        raise OutcomeUnknown(f"{method} {path}: HTTP {status}")
    try:
        answer = response.json() if response.data else {}
    except ValueError as error:
        raise ConfigError(_unexpected_response(method, path, status)) from error
    if not isinstance(answer, dict):
        raise ConfigError(_unexpected_response(method, path, status))
    if status == 404:
        raise UsageError(f"{method} {path}: there is none: {answer.get('message', '')}")
    if status in (401, 403):
        raise ConfigError(f"{method} {path}: refused with HTTP {status}: {answer.get('message', '')}; see kfp.token")
    if status >= 300:
        raise ConfigError(f"{method} {path}: HTTP {status}: {answer.get('message', '')}")
    return answer


def _unexpected_response(method: str, path: str, status: int) -> str:
    return f"{method} {path}: wanted JSON of a pipelines server, found something else (HTTP {status}); see kfp.endpoint"


def check_endpoint(endpoint: str) -> str:
    """Raises ConfigError for what is no http(s) address."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"kfp.endpoint: wanted http://host:port or https://host, found {endpoint!r}")
    return endpoint


State = Literal[
    "unknown", "PENDING", "RUNNING", "SUCCEEDED", "SKIPPED", "FAILED", "CANCELING", "CANCELED", "PAUSED"
]  # fmt: skip
FINAL: frozenset[State] = frozenset({"SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"})
PAGE_SIZE = 100
CONTENT_TAG = "file"
CONTENT_LETTERS = 12


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A failed component, or one of its tasks (`train-driver`, `executor`)."""

    name: str
    node: str = ""
    """Name of its node, for its log; empty if the server does not report it."""
    children: tuple[str, ...] = ()
    """Nodes of its parts."""
    error: str = ""
    """Reason that the server gives, if any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineRun:
    """A pipeline run as the server reports it."""

    id: str
    state: State
    run: str
    """Value of its parameter `run`."""
    failed: tuple["FailedTask", ...] = ()
    """Failed tasks, if the server reports them."""

    @property
    def is_final(self) -> bool:
        """Whether it has ended."""
        return self.state in FINAL


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineVersion:
    """Ids of a version of a pipeline."""

    pipeline_id: str
    id: str


@dataclass(frozen=True, slots=True)
class KfpClient:
    """Finds and creates objects of a pipelines server by name."""

    wire: KfpHttp

    def check(self) -> None:
        """Raises StorageError without a response, ConfigError if it is not a pipelines server."""
        self.wire.get("/healthz")

    def experiment(self, name: str) -> str:
        """Id of the experiment `name`, created if missing."""
        found = self._find_or_make("/experiments", "experiments", name, {"display_name": name})
        return str(found["experiment_id"])

    def version(self, pipeline: str, name: str, file: bytes, *, tags: Mapping[str, str]) -> PipelineVersion:
        """Version `name` of `pipeline` with the content `file`, uploaded if missing.

        If the name has other content (another image, for example), the digest of the content is added to it.
        """
        made = self._find_or_make("/pipelines", "pipelines", pipeline, {"display_name": pipeline})
        pipeline_id = str(made["pipeline_id"])
        content = sha256(file).hexdigest()[:CONTENT_LETTERS]
        marked = {**tags, CONTENT_TAG: content}
        found = self._version(pipeline_id, name, file, marked)
        if (found.get("tags") or {}).get(CONTENT_TAG, content) != content:
            found = self._version(pipeline_id, f"{name}-{content}", file, marked)
        return PipelineVersion(pipeline_id=pipeline_id, id=str(found["pipeline_version_id"]))

    def _version(self, pipeline_id: str, name: str, file: bytes, tags: Mapping[str, str]) -> dict[str, Any]:
        def attempt() -> dict[str, Any]:
            existing = self._oldest(f"/pipelines/{pipeline_id}/versions", "pipeline_versions", name)
            query = {"name": name, "display_name": name, "pipelineid": pipeline_id, "tags": json.dumps(dict(tags))}
            return existing or self.wire.request("POST", "/pipelines/upload_version", query=query, file=file)

        return self.wire.with_retries(attempt)

    def start(self, name: str, *, experiment: str, version: PipelineVersion, run: str, config: str) -> str:
        """Id of the pipeline run for `run`: a running one, else a new one."""
        reference = {"pipeline_id": version.pipeline_id, "pipeline_version_id": version.id}
        body = {
            "display_name": name,
            "experiment_id": experiment,
            "pipeline_version_reference": reference,
            "runtime_config": {"parameters": {"run": run, "config": config}},
        }

        def attempt() -> dict[str, Any]:
            existing = self.at_work(name, experiment=experiment, run=run)
            return {"run_id": existing.id} if existing else self.wire.request("POST", "/runs", body=body)

        return str(self.wire.with_retries(attempt)["run_id"])

    def at_work(self, name: str, *, experiment: str, run: str) -> PipelineRun | None:
        """The oldest pipeline run of that name for `run` that has not ended; None if there is none."""
        rows = self._list("/runs", "runs", {"experiment_id": experiment}, name)
        alive = [
            pipeline_run
            for pipeline_run in map(_run, sorted(rows, key=_age))
            if pipeline_run.run == run and not pipeline_run.is_final
        ]
        return alive[0] if alive else None

    def run(self, id_: str) -> PipelineRun:
        """Current state of a pipeline run."""
        return _run(self.wire.get(f"/runs/{id_}"))

    def log(self, id_: str, node: str) -> str:
        """Log of a task; empty if the server does not have it any more."""
        try:
            return self.wire.text(f"/apis/v1alpha1/runs/{id_}/nodes/{node}/log")
        except NoAnswer:
            return ""

    def terminate(self, id_: str) -> None:
        """Stop a pipeline run, which ends some 20 s later; harmless for one that has ended."""

        def attempt() -> dict[str, Any]:
            if _run(self.wire.request("GET", f"/runs/{id_}")).state in {*FINAL, "CANCELING"}:
                return {}
            return self.wire.request("POST", f"/runs/{id_}:terminate")

        self.wire.with_retries(attempt)

    def _find_or_make(self, path: str, field: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self.wire.with_retries(
            lambda: self._oldest(path, field, name) or self.wire.request("POST", path, body=body)
        )

    def _oldest(self, path: str, field: str, name: str) -> dict[str, Any] | None:
        return min(self._list(path, field, {}, name), key=_age, default=None)

    def _list(self, path: str, field: str, query: Mapping[str, str], name: str) -> Iterator[dict[str, Any]]:
        """Rows of that display name, filtered by the server and checked here."""
        name_filter = {"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]}
        query_ = {**query, "page_size": str(PAGE_SIZE), "filter": json.dumps(name_filter)}
        while True:
            page = self.wire.request("GET", path, query=query_)
            yield from (row for row in page.get(field) or () if row.get("display_name") == name)
            if not page.get("next_page_token"):
                return
            query_["page_token"] = page["next_page_token"]


def _run(row: Mapping[str, Any]) -> PipelineRun:
    tasks = (row.get("run_details") or {}).get("task_details") or ()
    parameters = (row.get("runtime_config") or {}).get("parameters") or {}
    text = row.get("state")
    return PipelineRun(
        id=str(row["run_id"]),
        state=cast(State, text) if text in get_args(State) else "unknown",
        run=str(parameters.get("run", "")),
        failed=tuple(_failed(task) for task in tasks if task.get("state") == "FAILED"),
    )


def _failed(task: Mapping[str, Any]) -> FailedTask:
    children = (str(child.get("pod_name") or "") for child in task.get("child_tasks") or ())
    error = str((task.get("error") or {}).get("message") or "")
    return FailedTask(str(task.get("display_name") or ""), str(task.get("pod_name") or ""), tuple(children), error)


def _age(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("created_at", "")), str(row.get("run_id", ""))

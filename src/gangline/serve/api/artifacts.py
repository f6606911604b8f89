"""`/api/v1/runs/{run}/artifacts/{kind}`: files of a run, named by kind and digest, never by a key of the store."""

import re
from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import Response, StreamingResponse

from gangline.registry.run_artifacts import output_key
from gangline.serve.api.dependencies import RunPath, ServiceDep, problems
from gangline.serve.api.service import Service
from gangline.serve.web.responses import DOCUMENT_POLICY, RequestRefused
from gangline.spec.program_files import OUTPUT_KIND
from gangline.spec.record import Artifact, Record

router = APIRouter(prefix="/api/v1/runs/{run}/artifacts", tags=["run"])
PIECE_BYTES = 1024 * 1024
_RANGE = re.compile(r"bytes=(?:(\d{1,15})-(\d{0,15})|-(\d{1,15}))")
_FILE = {"schema": {"type": "string", "format": "binary"}}


@router.get(
    "/{kind}",
    responses={
        200: {"description": "The file.", "content": {"*/*": _FILE}},
        206: {"description": "The requested range.", "content": {"*/*": _FILE}},
        **problems(404, 409, 416, 503),
    },
    response_class=Response,
)
def get_artifact(
    service: ServiceDep,
    run: RunPath,
    kind: Annotated[str, Path(pattern=r"^[a-z]{1,20}$", examples=["report"])],
    *,
    sha256: Annotated[str | None, Query(pattern=r"^[0-9a-f]{6,64}$", description="Beginning of its digest.")] = None,
    range_: Annotated[str | None, Header(alias="Range", max_length=100)] = None,
) -> Response:
    """One file, whole or a range; of several of one kind the first, unless `sha256` says which."""
    record = service.record(run)
    artifact = _select(record, kind, sha256)
    require_own(record, artifact)
    with service.store() as store:
        entry = store.head(artifact.key)
    if entry is None:
        raise RequestRefused(404, f"the record names this {kind}, but the store has it no more")
    start, end = wanted_range(range_, entry.size_bytes)
    headers = _headers(artifact)
    headers["Content-Length"] = str(end - start)
    whole = range_ is None or end - start == entry.size_bytes
    if not whole:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{entry.size_bytes}"
    pieces = _pieces(service, artifact.key, start, end)
    return StreamingResponse(pieces, 200 if whole else 206, headers, media_type=artifact.media_type)


def require_own(record: Record, artifact: Artifact) -> None:
    """Refuse a key that no driver of ours writes: a gang that writes its own record gets no other project's files."""
    own = artifact.key.startswith(f"{record.prefix}/") and ".." not in artifact.key
    if not own and artifact.key != f"blobs/sha256/{artifact.sha256}":
        raise RequestRefused(404, "the record names a file that is not the run's own")


def wanted_range(text: str | None, size: int) -> tuple[int, int]:
    """First byte and the one after the last; the whole file for a range of unknown form.

    Raises:
        RequestRefused: 416, it lies outside the file.
    """
    match = _RANGE.fullmatch(text or "")
    if match is None:
        return 0, size
    first, last, suffix = match.groups()
    start = int(first) if first is not None else max(0, size - int(suffix))
    end = min(size, int(last) + 1) if last else size
    if start >= end:
        raise RequestRefused(416, f"wanted a range within {size} bytes", {"Content-Range": f"bytes */{size}"})
    return start, end


def _select(record: Record, kind: str, digest: str | None) -> Artifact:
    if kind == OUTPUT_KIND:
        return _output(record, digest)
    artifacts = [
        artifact for artifact in record.artifacts if artifact.kind == kind and artifact.sha256.startswith(digest or "")
    ]
    if not artifacts:
        kinds = ", ".join(sorted({artifact.kind for artifact in record.artifacts})) or "none"
        raise RequestRefused(404, f"this run has no such {kind}; kinds that it has: {kinds}")
    return artifacts[0]


def _output(record: Record, digest: str | None) -> Artifact:
    """A file that the program wrote, of those that the record itself lists."""
    info = record.outputs
    files = [file for file in (info.files if info else ()) if file.sha256.startswith(digest or "")]
    if info is None or not files:
        raise RequestRefused(404, "this run has no such output; gangline artifacts lists all that it has")
    return Artifact(
        kind=OUTPUT_KIND, key=output_key(info.key, files[0].sha256), media_type="application/octet-stream",
        size_bytes=files[0].size_bytes, sha256=files[0].sha256,
    )  # fmt: skip


def _headers(artifact: Artifact) -> dict[str, str]:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", artifact.key.rsplit("/", 1)[1])
    shown = artifact.media_type == "text/html"
    return {
        "Accept-Ranges": "bytes",
        "ETag": f'"{artifact.sha256}"',
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f'{"inline" if shown else "attachment"}; filename="{name}"',
        "Content-Security-Policy": DOCUMENT_POLICY,
    }


def _pieces(service: Service, key: str, start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, PIECE_BYTES):
        with service.store() as store:
            blob = store.get(key, at, min(PIECE_BYTES, end - at))
        if blob is None:
            return
        yield blob.data

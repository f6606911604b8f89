"""Runs under kfp's local runner, and records without what no two runs share."""

from typing import Any

from tests.line import repositories

from gangline.kfp.driver import drive
from gangline.spec.codec import to_plain
from gangline.spec.record import Record

OF_THE_CLOCK = {
    "seq", "nonce", "created", "started", "ended", "seconds", "admitted", "released", "uid", "time", "wall_seconds",
    "allocated_seconds", "driver",
}  # fmt: skip
DRAWN = {"report", "junit"}
"""Artifacts that show times."""


def kfp_run(workspace, **asked) -> Record:
    repositories.settle_inventory(
        workspace.repo, **{key: asked[key] for key in ("commit", "overrides") if key in asked}
    )
    workspace.seen.__init__()
    return drive(workspace.repo, driving="kfp-local", **workspace.where, observer=workspace.seen, **asked)


def story(record: Record) -> dict[str, Any]:
    """What a record tells, without clocks and without who drove."""
    plain = _timeless(to_plain(record))
    del plain["stages"]["report"]["key"], plain["seal"]  # over times and all
    for artifact in plain["artifacts"]:
        if artifact["kind"] in DRAWN:
            del artifact["sha256"], artifact["size_bytes"]
    return plain


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in OF_THE_CLOCK}
    return [_timeless(item) for item in value] if isinstance(value, list) else value

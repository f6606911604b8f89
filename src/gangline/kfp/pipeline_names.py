"""Names that lead from a commit to its pipeline and back, made from the record alone."""

import re

from gangline.spec.config.site import Site
from gangline.spec.record import Record

MAX_NAME = 120
_PLAIN = re.compile(r"[^A-Za-z0-9._/-]+")


def run_name(record: Record) -> str:
    """`9f31c2a0-main-a1`; the attempt is that of the run."""
    return _cut(f"{record.commit.sha[:8]}-{_branch(record)}-a{record.run.attempt}")


def experiment_name(record: Record) -> str:
    """`bytegpt/main`: the compare page shows the runs of one branch side by side."""
    return _cut(f"{record.run.project}/{_branch(record)}")


def version_name(record: Record) -> str:
    """`<commit>-<line 8>`: the same sources, the same pipeline file."""
    return f"{record.commit.sha}-{record.inputs.line[:8]}"


def run_url(site: Site, id_: str) -> str:
    """Page of a pipeline run."""
    return f"{_ui(site)}/#/runs/details/{id_}"


def run_id_of_url(url: str) -> str:
    """The id that `link` put into `url`."""
    return url.rsplit("/", 1)[-1]


def _ui(site: Site) -> str:
    return (site.kfp.ui_url or site.kfp.endpoint or "").rstrip("/")


def _branch(record: Record) -> str:
    """Somebody's words: only what is plain in every name."""
    return _PLAIN.sub("-", record.commit.branch or "detached")


def _cut(name: str) -> str:
    return name[:MAX_NAME]

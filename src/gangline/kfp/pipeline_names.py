"""Names of experiments, versions and runs on a pipelines server, made from the record."""

import re

from gangline.spec.config.site import Site
from gangline.spec.record import Record

MAX_NAME = 120
_PLAIN = re.compile(r"[^A-Za-z0-9._/-]+")


def run_name(record: Record) -> str:
    """Such as `9f31c2a0-main-a1`, with the attempt of the run."""
    return _shorten_name(f"{record.commit.sha[:8]}-{_branch(record)}-a{record.run.attempt}")


def experiment_name(record: Record) -> str:
    """`bytegpt/main`: the compare page shows the runs of one branch side by side."""
    return _shorten_name(f"{record.run.project}/{_branch(record)}")


def version_name(record: Record) -> str:
    """`<commit>-<line 8>`, equal for equal pipeline files."""
    return f"{record.commit.sha}-{record.inputs.line[:8]}"


def run_url(site: Site, id_: str) -> str:
    """Page of a pipeline run."""
    return f"{(site.kfp.ui_url or site.kfp.endpoint or '').rstrip('/')}/#/runs/details/{id_}"


def run_id_of_url(url: str) -> str:
    """Id of the pipeline run in a `run_url`."""
    return url.rsplit("/", 1)[-1]


def _branch(record: Record) -> str:
    """Branch with only characters that every name allows."""
    return _PLAIN.sub("-", record.commit.branch or "detached")


def _shorten_name(name: str) -> str:
    return name[:MAX_NAME]

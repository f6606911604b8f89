"""Secrets of programs that track by themselves: the token of their tracker, and MLflow's own id of the run."""

from collections.abc import Mapping
from pathlib import Path

from gangline.errors import GanglineError, IntegrityError
from gangline.line.record.store import read_record
from gangline.line.request.trust import Rights
from gangline.metrics.record_values import price_at
from gangline.spec.config.secrets import resolve_secret
from gangline.spec.config.site import Site
from gangline.storage.objects.protocol import ObjectStore
from gangline.trackers.operations import tracked_run
from gangline.trackers.programs import MLFLOW_RUN, MLFLOW_TOKEN, WANDB_TOKEN, joined_trackers
from gangline.trackers.writer_process import WriterProcess, writer_settings

NAMES = (MLFLOW_RUN, MLFLOW_TOKEN, WANDB_TOKEN)
"""Variables that come from trackers where the line does not name them."""


def read_program_secret(
    variable: str, rights: Rights, *, store: ObjectStore, repo: Path, site: Site, environ: Mapping[str, str]
) -> str:
    """Value of one of NAMES; empty where the tracker does not answer: rank 0 then tracks as the other ranks do.

    Raises:
        IntegrityError: The run with these rights joins no such tracker; a fork's run joins none.
        ConfigError: The token is not there.
    """
    record = read_record(store, "/".join(rights.writes.split("/")[:4]))
    trackers = {} if record is None or rights.is_fork else joined_trackers(record, site)
    kind = "wandb" if variable == WANDB_TOKEN else "mlflow"
    name = next((name for name, table in trackers.items() if table.kind == kind), None)
    if record is None or name is None:
        raise IntegrityError(f"a gang asks for {variable} of a tracker, and its run joins none of that kind")
    table = site.track[name]
    if variable != MLFLOW_RUN:
        return resolve_secret(table.token or "", environ)
    run = tracked_run(record, experiment=table.experiment, price=price_at(site))
    try:
        process = WriterProcess(writer_settings(repo, site, name, environ=environ), table=table, environ=environ)
        try:
            process.open()
            process.begin(run)
            there = process.look(run)
        finally:
            process.end()
    except GanglineError:  # the mirror of the driver says so in the record
        return ""
    return there.id if there is not None else ""

"""Variables by which a program that tracks by itself joins the run that its driver mirrors. Pure.

Rank 0 of a training writes there; other ranks, seeds and evaluations get trackers that keep nothing, so that one
training is one run. What the driver writes has a prefix then: a program may use the same names for its own values.
"""

from collections.abc import Iterator, Mapping

from gangline.spec.config.secrets import VARIABLE
from gangline.spec.config.site import Site
from gangline.spec.config.site_tables import TrackTable
from gangline.spec.gang.podset import TRACKERS_KEY
from gangline.spec.plan import Role
from gangline.spec.record import Record
from gangline.trackers.operations import experiment_of

MLFLOW_RUN, MLFLOW_TOKEN, WANDB_TOKEN = "MLFLOW_RUN_ID", "MLFLOW_TRACKING_TOKEN", "WANDB_API_KEY"
_WANDB = "https://api.wandb.ai"


def joined_trackers(record: Record, site: Site) -> dict[str, TrackTable]:
    """Trackers by name that programs of this run join, at most one of each kind; a fork's none.

    A line that sets variables of that kind itself (`MLFLOW_*`, `WANDB_*`) says where its program tracks.
    """
    values = record.inputs.values
    names = site.track if values.get("project.track") is None else values["project.track"]
    by_kind: dict[str, str] = {}
    for name, table in site.track.items():
        is_set = any(key.startswith(f"train.env.{table.kind.upper()}_") for key in values)
        if record.commit.trust == "own" and table.programs and name in names and not is_set:
            by_kind.setdefault(table.kind, name)
    return {name: site.track[name] for kind, name in by_kind.items() if kind != "tensorboard"}


def program_variables(record: Record, trackers: Mapping[str, TrackTable], role: Role) -> dict[str, str]:
    """Variables of the gang that are no secret; empty without trackers, so that its digest does not change."""
    if not trackers:
        return {}
    found: dict[str, str] = {}
    for table in trackers.values():
        if role == "train" and table.kind == "mlflow":
            found |= {"MLFLOW_TRACKING_URI": table.url or "", "MLFLOW_DISABLE_TELEMETRY": "true"}
        elif role == "train":
            found |= {"WANDB_RUN_ID": record.run.id, "WANDB_RESUME": "allow", "WANDB_MODE": table.mode}
            entity, _, project = experiment_of(record, table.experiment).rpartition("/")
            found |= {"WANDB_PROJECT": project} | ({"WANDB_ENTITY": entity} if entity else {})
            found |= {"WANDB_BASE_URL": table.url} if table.url else {}
    return found | {TRACKERS_KEY: " ".join(f"{table.kind}={_address(table, role)}" for table in trackers.values())}


def program_secrets(trackers: Mapping[str, TrackTable], role: Role) -> Iterator[str]:
    """Names of the gang's secrets that its rank 0 has from its trackers."""
    for table in trackers.values() if role == "train" else ():
        if table.kind == "mlflow":
            yield f"{VARIABLE}{MLFLOW_RUN}"
        if table.token is not None:
            yield f"{VARIABLE}{MLFLOW_TOKEN if table.kind == 'mlflow' else WANDB_TOKEN}"


def _address(table: TrackTable, role: Role) -> str:
    """What pods of the gang may reach for it."""
    is_reached = role == "train" and not (table.kind == "wandb" and table.mode == "offline")
    return (table.url or _WANDB) if is_reached else ""

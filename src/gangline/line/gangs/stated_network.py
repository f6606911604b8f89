"""The network that a `fabric.toml` states, and what was measured of it, for plans and for the placement of gangs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.fabric.topology.inventory import Fabric
from gangline.fabric.traffic.paths import path_environment
from gangline.spec.codec import Document
from gangline.spec.config.line import Line
from gangline.spec.plan import Plan
from gangline.storage.objects.blobs import get_blob, put_blob
from gangline.storage.objects.protocol import ObjectStore

if TYPE_CHECKING:
    from gangline.fabric.probe.measured_links import LinkMeasurement

LATEST = "network/latest.json"
"""Key of the name of the newest measurement in a store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedNetwork:
    """A network as plans count with it."""

    fabric: Fabric
    """The stated fabric, with measured speeds where there are any."""
    links: str
    """Whether its speeds are measured or assumed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Latest(Document):
    measurement: str
    """Key of its blob."""


def stated_network(environ: Mapping[str, str], file: Path | None = None) -> Fabric | None:
    """Fabric of `file`, else of GANGLINE_FABRIC, the user's or the system's; None: there is none.

    Raises:
        ConfigError: A file that was named is missing, or one is wrong.
    """
    from gangline.spec.config.load import load_fabric  # a task of a pipeline that has its plan reads no file

    fabric_file = load_fabric(file, environ=environ)
    if fabric_file is None:
        return None
    from gangline.fabric.topology.fabric_file import fabric_of  # most sites state no network

    return fabric_of(fabric_file.fabric)


def planned_network(stated: Fabric | None, store: ObjectStore) -> PlannedNetwork | None:
    """`stated` with what `store` has of measured speeds; None: none is stated."""
    if stated is None:
        return None
    from gangline.fabric.probe.measured_links import links_words, with_measured_links

    measured = read_measurement(store)
    return PlannedNetwork(fabric=with_measured_links(stated, measured), links=links_words(stated, measured))


def network_environment(stated: Fabric | None, plan: Plan, line: Line) -> dict[str, str]:
    """Variables that make the ranks of `plan` use `stated` as its certificate counts; none that the line sets, none on
    CPUs."""
    return {name: value for name, value in _counted(stated, plan).items() if name not in line.train.env}


def uncounted_environment(stated: Fabric | None, plan: Plan, line: Line) -> tuple[str, ...]:
    """What the line sets otherwise than certificate and forecast count: `NCCL_IB_QPS_PER_CONNECTION=8, not 4`."""
    counted, own = _counted(stated, plan), line.train.env
    return tuple(f"{name}={own[name]}, not {value}" for name, value in counted.items() if own.get(name, value) != value)


def _counted(stated: Fabric | None, plan: Plan) -> dict[str, str]:
    if stated is None or plan.device != "cuda":
        return {}
    return path_environment(stated.path_policy, connections=stated.connections)


def keep_measurement(store: ObjectStore, measurement: "LinkMeasurement") -> str:
    """Store it where plans read it; returns the key of its blob."""
    key = put_blob(store, measurement.to_json())
    store.put(LATEST, _Latest(measurement=key).to_json())
    return key


def read_measurement(store: ObjectStore) -> "LinkMeasurement | None":
    """The newest one that was kept; None: none was.

    Raises:
        IntegrityError: What is there is none.
    """
    from gangline.fabric.probe.measured_links import LinkMeasurement

    blob = store.get(LATEST)
    return None if blob is None else LinkMeasurement.from_json(
        get_blob(store, _Latest.from_json(blob.data).measurement)
    )  # fmt: skip

"""Tables of `site.toml` that parts of their own read, as frozen data, and `member.toml` of a member of a federation.

They are `[environments]` and `[index.NAME]`, `[slurm]`, `[source.NAME]` and `[cache]`, `[track.NAME]`, `[federation]`.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from gangline.spec.bounds import Bound

KITS = "gangline-kit"
"""Name of the Secret with kits, or its beginning before a hyphen; admission gives pods no other one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FederationTable:
    """Federation that this site coordinates; without `kit` members are simulated."""

    kit: str | None = None
    """NVFlare server kit of the coordinator: a folder, or for gangs on a cluster an archive, `secret:k8s:NAME/KEY`."""
    admin: str | None = None
    """Reference to the admin kit, `secret:file:/FOLDER` or on a cluster `secret:k8s:NAME/KEY`; wanted with kit."""
    members: tuple[str, ...] = ()
    """Names of the certificates that may take part; others are ignored and counted."""
    image: str | None = None
    """Image of the coordinator on a cluster, by digest; wanted there."""
    service: str = "federation"
    """Service on a cluster that members dial; with the namespace it is the host that their kits name."""
    port: int = 8002
    """Port of the server kit, on a cluster."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberTable:
    """`member.toml`, whole: what a member allows; only its administrator may write the file."""

    data: str
    """Folder that model code reads, and nothing else of this machine."""
    approve: Literal["each", "signed"] = "each"
    """Whether every offer waits for `gangline federate approve`, or those run that one of `signers` signed."""
    signers: tuple[str, ...] = ()
    """Ids of keys of `gangline keys` whose offers run without a word here, with any roster and any settings."""
    epsilon: Annotated[float, Bound(least=0, works="0 refuses every run that asks for privacy")] = 0.0
    """Privacy budget of all runs together, by plain addition."""
    private: bool = False
    """Runs that ask for no epsilon are refused."""
    least_sum: Annotated[int, Bound(least=3, works="a sum of two tells each of them the other one")] = 3
    """Smallest group whose secure sum this member joins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentsTable:
    """Environments that gangline makes of locks, on the machine that ranks run on."""

    find_links: tuple[str, ...] = ()
    """Absolute paths of folders with wheels, in addition to the indexes."""
    keep_days: Annotated[float, Bound(least=0)] = 30.0
    """`gangline sweep` deletes an environment, or the home of a branch, that no run used for so long."""
    python_downloads: bool = False
    """A Python that this machine lacks is fetched."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexTable:
    """One index of packages, as `[index.NAME]`; those of the file come before the public one, in their order."""

    url: str
    """URL of the index's simple API."""
    credentials: str | None = None
    """Reference; the value is `USER:PASSWORD`. Never used for a commit of a fork."""
    default: bool = False
    """This index takes the place of the public one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmTable:
    """How gangs are submitted to Slurm, under `launch.target = "slurm"`."""

    shared: str | None = None
    """Absolute path of a folder that this machine and all servers see; required."""
    partition: str | None = None
    """Partition of the jobs; none: the default one."""
    account: str | None = None
    """Account that hours are booked on; none: the user's."""
    qos: str | None = None
    """Quality of service."""
    constraint: str | None = None
    """Features that servers must have."""
    time_seconds: int | None = None
    """Time limit of one life of a gang; none: the partition's."""
    options: tuple[str, ...] = ()
    """Further words of sbatch."""
    via: tuple[str, ...] = ()
    """Words before each command of Slurm, `["ssh", "login1"]`."""
    lives: Annotated[int, Bound(least=1), Bound(most=100)] = 3
    """How often a gang may be started, over time limits and preemption."""
    margin_seconds: Annotated[int, Bound(least=1), Bound(most=65_535)] = 60
    """Time between the signal to save and the time limit; sbatch takes 65,535 at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceTable:
    """A store of data that is not gangline's own, as `[source.NAME]`."""

    url: str
    """fsspec URL that all paths of the source lie below: `webhdfs://namenode:9870/corpora`, `file:///data`."""
    credentials: str | None = None
    """Reference; the value is `USER:PASSWORD`, or a token."""
    hosts: tuple[str, ...] = ()
    """Hosts with ports that the source may redirect to, `datanode-*.example:9864`; none: its own host alone."""
    ranks: bool = False
    """Gangs of own commits may read it in place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheTable:
    """Shards of data sets that a server keeps between runs; without a path each gang fetches its own."""

    path: str | None = None
    """Absolute path of the folder."""
    bytes: Annotated[float | None, Bound(least=1e6, works="2e12 is 2 TB")] = None
    """Most bytes that it keeps; none: 0.8 of the disk."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackTable:
    """One tracker that runs are mirrored into, as `[track.NAME]`."""

    kind: Literal["mlflow", "wandb", "tensorboard"]
    """Which tracker it is."""
    url: str | None = None
    """Address of its server; none: the public service of Weights & Biases."""
    token: str | None = None
    """Reference to the token of its API."""
    mode: Literal["online", "offline"] = "online"
    """Whether Weights & Biases is sent to a server, or written into a folder that `wandb sync` sends later."""
    path: str | None = None
    """Folder for TensorBoard, or for offline runs of Weights & Biases; none: `trackers/NAME` in the
    repository's `.gangline`."""
    experiment: str = "{project}"
    """Experiment or project of the tracker; `{project}` and `{branch}` are replaced."""
    every_seconds: Annotated[float, Bound(least=0.1)] = 30.0
    """Time between two sends while a run goes on."""
    python: str | None = None
    """Interpreter that has the tracker's package; none: the one that gangline runs with."""
    models: bool = False
    """Mirror published versions and aliases into MLflow's registry of models."""
    programs: bool = False
    """Give rank 0 of own commits the address and the run, so that a program that tracks by itself joins it."""

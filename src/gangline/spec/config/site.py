"""`site.toml` as frozen data: where lines run. Secrets are references only; the defaults alone are a complete site."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from gangline.spec.bounds import (
    BYTES_PER_SECOND,
    FLOPS_PER_SECOND,
    MEMORY_BYTES,
    SECONDS_LOST,
    SECONDS_OF_A_MESSAGE,
    SHARE,
    Bound,
)
from gangline.spec.config.fabric import FailureRates, Preset
from gangline.spec.config.infer_table import KserveTable, SiteInferTable
from gangline.spec.config.site_tables import (
    CacheTable,
    EnvironmentsTable,
    FederationTable,
    IndexTable,
    SlurmTable,
    SourceTable,
    TrackTable,
)
from gangline.spec.launchers import Target

MOST_OUTPUT_FILES = 100_000
"""Most files that a site may allow: a driver holds the list of them in memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreTable:
    """Where records, checkpoints and models live."""

    url: str = "file:.gangline/store"
    """`file:PATH` or `s3://bucket/prefix`; a relative path begins at line.toml, in the repository's main work tree."""
    endpoint: str | None = None
    """URL of an S3 server; required with an `s3://` URL."""
    cluster_endpoint: str | None = None
    """URL by which gangs on a cluster reach the same server; none: by `endpoint`."""
    region: str | None = None
    """Region of the bucket, where the server wants one."""
    credentials: str | None = None
    """`secret:env:NAME`, ...: `ACCESS_KEY:SECRET_KEY`; or `aws:role`, `aws:profile:NAME`, `aws:cli:NAME`."""
    scoped: bool = True
    """A credential per run, where the server can lend one."""
    data: tuple[str, ...] = ("data/",)
    """Prefixes of keys that the data of any line may name, a fork's too; apart from them, a line reads its own runs
    only. `datasets/NAME/` opens that data set to forks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryTable:
    """Images that ranks run in on a cluster."""

    image: str | None = None
    """Where images are pushed, without a tag."""
    base: str | None = None
    """Base image with `@sha256:`, for lines that name none."""
    builder: Literal["none", "docker", "buildkit", "buildah", "layer"] = "none"
    """What builds images; none: the environment as it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchTable:
    """Where gangs run, and how they are started there."""

    target: Target = "local"
    """Where gangs run."""
    namespace: str | None = None
    """Kubernetes namespace, or "per-run"."""
    queue: str | None = None
    """Queue of the batch scheduler."""
    pool: str | None = None
    """Servers of gangs, by their label gangline/pool; none: those without the label."""
    priority: Literal["low", "normal", "high"] = "normal"
    """Priority of gangs that wait in our placer; pods get PriorityClass gangline-PRIORITY where there is one."""
    launcher: Literal["trainjob", "job", "jobset"] = "trainjob"
    """Kubernetes object of a gang; job where the cluster serves no trainjobs."""
    route: Literal["auto", "gates", "kueue", "jobset", "volcano", "kai", "none"] = "auto"
    """Who starts a gang of several pods whole: our placer, Kueue, JobSet in one group of its own, Volcano, KAI, or
    none; auto: Kueue where it has a topology."""
    ledger: str | None = None
    """Namespace of our placer's ledger; none: that of the gangs. Namespaces whose gangs share servers name one."""
    runtime: str | None = None
    """ClusterTrainingRuntime that an administrator keeps; none: a runtime of its own for every gang."""
    context: str | None = None
    """Context of the kubeconfig; none: its current one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodTable:
    """The pods of a gang on a cluster."""

    procs: int | None = None
    """Ranks in one pod; none: one a GPU of a server, one on CPU."""
    cpus: float = 1.0
    """Cores of one rank."""
    memory_bytes: float = 4e9
    """Memory of one rank, without its share of /dev/shm."""
    shm_bytes: float = 1e9
    """Size of /dev/shm of a pod; counts as memory of the pod."""
    disk_bytes: float = 10e9
    """Disk space of a pod, for code, data and logs."""
    gpu: str = "nvidia.com/gpu"
    """Name of the GPU resource."""
    rdma: str | None = None
    """Name of the RDMA resource, one a GPU; none: not asked for."""
    interface: str = "eth0"
    """Network interface of ranks."""
    account: str = "gangline-gang"
    """Service account; it needs no right at all."""
    user: int = 65532
    """Numeric user and group that ranks run as."""
    pull: Literal["IfNotPresent", "Never", "Always"] = "IfNotPresent"
    """When images are pulled."""
    pull_secrets: tuple[str, ...] = ()
    """Names of secrets of the namespace: `gangline-pull`, `gangline-pull-...`; its admission policy takes no others."""
    selector: dict[str, str] = field(default_factory=dict)
    """Labels that servers must have."""
    tolerate: tuple[str, ...] = ()
    """Keys of taints that pods bear."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuTable:
    """One kind of GPU, as `[gpu.NAME]`."""

    memory_bytes: Annotated[float, MEMORY_BYTES]
    """Memory of one device."""
    reserve_bytes: float = 4e9
    """Context and communicators, never planned with."""
    flops_per_second: Annotated[dict[str, float], FLOPS_PER_SECOND] = field(default_factory=dict)
    """Delivered rate by precision."""
    memory_bytes_per_second: Annotated[float | None, BYTES_PER_SECOND] = None
    """Delivered bandwidth."""
    link_bytes_per_second: Annotated[float | None, BYTES_PER_SECOND] = None
    """Delivered between devices of one server, each way and of one device, as nccl-tests prints "busbw"."""
    network_bytes_per_second: Annotated[float | None, BYTES_PER_SECOND] = None
    """Delivered between servers, each way: one device's share of the network, as nccl-tests prints "busbw"."""
    link_latency_seconds: Annotated[float | None, SECONDS_OF_A_MESSAGE] = None
    """Latency from one device to the next of its server, of each message of a collective; none: forecasts count 0."""
    network_latency_seconds: Annotated[float | None, SECONDS_OF_A_MESSAGE] = None
    """Latency from one device to one of another server, of each message of a collective; none: forecasts count 0."""
    host_link_bytes_per_second: float | None = None
    """Delivered between one device and the memory of its server, each way; none: 25e9 is assumed."""
    host_memory_bytes: Annotated[float | None, MEMORY_BYTES] = None
    """Memory of a server, for plans of GPUs that are not here (`--gpus`); none: these leave nothing there."""
    host_memory_bytes_per_second: float | None = None
    """Delivered by the memory of a server to its cores; none: 200e9 is assumed."""
    price_per_hour: Annotated[float | None, Bound(least=0, most=1e9)] = None
    """Price of one device, in money.currency."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SitePlanTable:
    """How far the planner trusts its forecasts."""

    memory_margin: Annotated[float, SHARE] = 0.10
    """Share by which a memory forecast may be short, until it is calibrated."""
    band: Annotated[float, SHARE] = 0.05
    """Share within which two forecasts count as equal."""
    overlap: Annotated[float, SHARE] = 0.0
    """Share of computing that hides communication; of a forward pass, also updates that travel during it."""
    storage: Annotated[dict[str, float], BYTES_PER_SECOND] = field(
        default_factory=lambda: {"file system": 25e9, "object store": 1.25e9}
    )
    """Bytes per second that one server writes to each class of storage; unless given, 25e9 to `file system` and 1.25e9
    to `object store`."""
    saves_to: str | None = None
    """The class that checkpoints are written to while training waits; none: time for saves is not counted."""
    restart_seconds: Annotated[float, SECONDS_LOST] = 180.0
    """Time from an interruption to the next step, without what is computed again."""
    start_seconds: Annotated[float, SECONDS_LOST] = 0.0
    """Time from the start of a gang to its first step."""
    failures: Preset | FailureRates = "llama3"
    """Published rates of interruptions by name, or a table of mean hours to a failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MoneyTable:
    """What prices are in."""

    currency: str = "EUR"
    """Three letters, as in every price of this file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillTable:
    """Faults that may be injected on purpose."""

    allow: tuple[str, ...] = ()
    """Drills by name that this site permits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxTable:
    """Where model code runs on a machine: tasks, programs and whatever they import."""

    mode: Literal["auto", "required", "off"] = "auto"
    """auto: in the best sandbox there is, own commits without one where there is none; required: never without one;
    off: own commits in none."""
    read: tuple[str, ...] = ()
    """Absolute paths that own commits may read, too: data sets in a home for instance; forks never may."""
    home: Literal["kept", "empty"] = "kept"
    """kept: own commits of a branch find the downloads of their earlier runs in their home; empty: each gang begins
    with an empty home, so that each run of a branch that publishes may be published."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretsTable:
    """Secrets of this site that lines may name; everyone who may push a branch writes a line."""

    train_env: tuple[str, ...] = ()
    """Patterns of what `[train.env]` may refer to: `env:HF_TOKEN`, `env:WANDB_*`, `file:/run/keys/*`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SignTable:
    """Who signs models here, and whose signature counts."""

    key: str | None = None
    """Reference; None: a local key, made at first use with mode 0600."""
    identities: tuple[str, ...] = ()
    """Key ids whose signature may be promoted; empty: this site's own key."""
    forks: tuple[str, ...] = ()
    """Key ids of drivers that see forks alone: they seal a fork's record until it is approved, nothing else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitsTable:
    """Ceilings over every line of this site."""

    gpu_hours_per_run: Annotated[float | None, Bound(least=0)] = None
    """No line may ask for more."""
    money_per_run: Annotated[float | None, Bound(least=0)] = None
    """No line may ask for more."""
    active_runs: Annotated[int, Bound(least=1)] = 8
    """Runs at the same time."""
    run_seconds: Annotated[float, Bound(least=1)] = 172_800.0
    """Longest time of each gang of a run: then it is asked to save, and stopped."""
    orphan_seconds: Annotated[float, Bound(least=0)] = 86_400.0
    """When a gang without a driver is swept."""
    output_files: Annotated[
        int, Bound(least=1), Bound(most=MOST_OUTPUT_FILES, works="pack them: one archive is one file")
    ] = 10_000
    """Most files that are collected of one gang, by project.outputs; with more, nothing is."""
    output_bytes: Annotated[float, Bound(least=1)] = 20e9
    """Most bytes of all these files together; with more, nothing is collected."""
    tracked_bytes: Annotated[float, Bound(least=1)] = 100e9
    """Most bytes of one commit's files that DVC or Git LFS track, which each gang gets a copy of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgeTable:
    """One forge, as `[forge.NAME]`."""

    kind: Literal["github", "gitlab", "gitea"]
    """Which API it speaks."""
    url: str | None = None
    """Address of its API; none: the public service of that kind."""
    projects: dict[str, str] = field(default_factory=dict)
    """Repository on the forge to project name."""
    token: str | None = None
    """Reference; for statuses and comments."""
    hook_secret: str | None = None
    """Reference; signs its webhooks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeTable:
    """The service: webhooks, HTTP API, pages."""

    listen: str = "127.0.0.1:8321"
    """Address of the service; beyond loopback it demands tokens."""
    database: str | None = None
    """Path of an SQLite file or URL of a PostgreSQL; none: a file in the home."""
    public_url: str | None = None
    """How others reach it, for links."""
    workers: Annotated[int, Bound(least=1)] = 2
    """Runs driven at the same time."""
    tokens: str | None = None
    """Reference to the file of accepted tokens."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of the proxies before the service, whose `X-Forwarded-For` counts."""
    repositories: dict[str, str] = field(default_factory=dict)
    """Project to a repository of this machine, for lines without a forge."""
    this_repository: bool = True
    """The repository that it is started in is served, where the site names no other and no forge."""
    home: str | None = None
    """Folder of clones and SQLite file; none: next to a store that is a folder, else in the user's data folder."""
    clone_bytes: Annotated[float, Bound(least=16e6)] = 20e9
    """Size of the clone of one repository on the disk; what does not fit is not fetched."""
    keep_orders_seconds: Annotated[int, Bound(least=30 * 86_400.0)] = 7_776_000
    """Orders that are done or dropped are deleted after that; 30 days at least, as long as repeats are known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsTable:
    """Series of runs, and where they are looked at."""

    port_base: Annotated[
        int, Bound(least=1, most=65_535, words="a port of 1 to 65535", works="9400 is the default")
    ] = 9400
    """First port of the ranks' exporters."""
    grafana_url: str | None = None
    """Address of Grafana, for links."""
    driver_port: Annotated[
        int | None, Bound(least=1, most=65_535, words="a port of 1 to 65535", works="9399 works")
    ] = None
    """Port on which a driver serves the series of its run, or the next free one; none: it serves none."""
    targets: str | None = None
    """Folder of files that tell a Prometheus of this machine what to scrape; none: in the repository's `.gangline`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KfpTable:
    """The pipelines server that drives lines here."""

    endpoint: str | None = None
    """URL of the pipelines API."""
    image: str | None = None
    """Image of a pipeline's tasks, with `@sha256:`; none: that of the run."""
    secret: str = "gangline-line"  # noqa: S105  # its name
    """Kubernetes secret of the tasks; its keys are `store-credentials` and `sign-key`."""
    ui_url: str | None = None
    """Address of the pages of Kubeflow Pipelines, for links."""
    token: str | None = None
    """Reference."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """`site.toml`, whole."""

    store: StoreTable = StoreTable()
    registry: RegistryTable = RegistryTable()
    launch: LaunchTable = LaunchTable()
    pod: PodTable = PodTable()
    gpu: dict[str, GpuTable] = field(default_factory=dict)
    plan: SitePlanTable = SitePlanTable()
    money: MoneyTable = MoneyTable()
    drill: DrillTable = DrillTable()
    sandbox: SandboxTable = SandboxTable()
    secrets: SecretsTable = SecretsTable()
    environments: EnvironmentsTable = EnvironmentsTable()
    index: dict[str, IndexTable] = field(default_factory=dict)
    sign: SignTable = SignTable()
    limits: LimitsTable = LimitsTable()
    projects: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Project to addresses of its repository, where the store lacks one; the first run in a clone writes it there."""
    forge: dict[str, ForgeTable] = field(default_factory=dict)
    track: dict[str, TrackTable] = field(default_factory=dict)
    source: dict[str, SourceTable] = field(default_factory=dict)
    cache: CacheTable = CacheTable()
    slurm: SlurmTable = SlurmTable()
    serve: ServeTable = ServeTable()
    metrics: MetricsTable = MetricsTable()
    kfp: KfpTable = KfpTable()
    infer: SiteInferTable = SiteInferTable()
    kserve: KserveTable = KserveTable()
    federation: FederationTable = FederationTable()

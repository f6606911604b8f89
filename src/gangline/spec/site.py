"""`site.toml` as frozen data: where lines run. Secrets are references only; the defaults alone are a complete site."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreTable:
    url: str = "file:.gangline/store"
    """`file:PATH` or `s3://bucket/prefix`."""
    endpoint: str | None = None
    region: str | None = None
    credentials: str | None = None
    """`secret:env:NAME`, `secret:file:PATH`, `secret:k8s:NAME/KEY`; the value is `ACCESS_KEY:SECRET_KEY`."""
    scoped: bool = True
    """An STS credential per run, where the server can."""
    copies: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryTable:
    image: str | None = None
    base: str | None = None
    builder: Literal["none", "docker", "buildkit", "buildah", "layer"] = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchTable:
    target: Literal["local", "kubernetes", "slurm", "kfp", "kfp-local"] = "local"
    namespace: str | None = None
    queue: str | None = None
    launcher: Literal["trainjob", "job"] = "trainjob"


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuTable:
    """One kind of GPU, as `[gpu.NAME]`."""

    memory_bytes: float
    reserve_bytes: float = 4e9
    flops_per_second: dict[str, float] = field(default_factory=dict)
    memory_bytes_per_second: float | None = None
    price_per_hour: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanTable:
    memory_margin: float = 0.10
    band: float = 0.05
    overlap: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class MoneyTable:
    currency: str = "EUR"


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillTable:
    allow: tuple[str, ...] = ()
    """Drills by name that this site permits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SignTable:
    key: str | None = None
    """Reference; None: a local key, made at first use with mode 0600."""
    identities: tuple[str, ...] = ()
    """Key ids whose signature may be promoted; empty: this site's own key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitsTable:
    gpu_hours_per_run: float | None = None
    money_per_run: float | None = None
    active_runs: int = 8
    run_seconds: float = 172_800.0
    orphan_seconds: float = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgeTable:
    """One forge, as `[forge.NAME]`."""

    kind: Literal["github", "gitlab", "gitea"]
    url: str | None = None
    projects: dict[str, str] = field(default_factory=dict)
    """Repository on the forge to project name."""
    token: str | None = None
    hook_secret: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeTable:
    listen: str = "127.0.0.1:8321"
    database: str | None = None
    public_url: str | None = None
    workers: int = 2
    tokens: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsTable:
    port_base: int = 9400
    max_ranks: int = 256
    prometheus_url: str | None = None
    grafana_url: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JenkinsTable:
    url: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class KfpTable:
    endpoint: str | None = None
    ui_url: str | None = None
    token: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    store: StoreTable = StoreTable()
    registry: RegistryTable = RegistryTable()
    launch: LaunchTable = LaunchTable()
    gpu: dict[str, GpuTable] = field(default_factory=dict)
    plan: PlanTable = PlanTable()
    money: MoneyTable = MoneyTable()
    drill: DrillTable = DrillTable()
    sign: SignTable = SignTable()
    limits: LimitsTable = LimitsTable()
    forge: dict[str, ForgeTable] = field(default_factory=dict)
    serve: ServeTable = ServeTable()
    metrics: MetricsTable = MetricsTable()
    jenkins: JenkinsTable = JenkinsTable()
    kfp: KfpTable = KfpTable()

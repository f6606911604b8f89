"""The servers of the stack: program, arguments, port, readiness address, how to install what is missing; their files.

Files are those of Prometheus with its scrape token, Grafana's boards, and site.toml.
"""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from time import time
from typing import Literal

import gangline
from gangline.errors import CapacityError, ConfigError, NotInstalledError
from gangline.launch.local.scrape_targets import LOOPBACK, is_free
from gangline.serve.context.accounts import digest_of, new_token
from gangline.serve.database.types import Principal
from gangline.spec.config.load import load_line
from gangline.stack.home import StackHome, write_private

_PACKAGE_FOLDER = Path(str(gangline.__file__)).parent


def monitoring_folder() -> Path:
    """Raises ConfigError where this installation has none."""
    candidates = (_PACKAGE_FOLDER.parents[1] / "monitoring", _PACKAGE_FOLDER / "definitions" / "monitoring")
    path = next((candidate for candidate in candidates if (candidate / "grafana" / "dashboards").is_dir()), None)
    if path is None:
        looked = ", ".join(map(str, candidates))
        raise ConfigError(f"wanted a folder with Grafana's boards, found none among {looked}; reinstall gangline")
    return path


USUAL_PORTS = {"s3": 9000, "prometheus": 9090, "grafana": 3000, "service": 8321}
_PORT_TRIES = 200


def settle_ports(remembered: dict[str, int], *, kept: set[str]) -> dict[str, int]:
    """A port for every name.

    Args:
        remembered: From the last time; used again where it is free.
        kept: Names whose server runs: their port is theirs.
    """
    settled = {name: remembered[name] for name in kept if name in remembered}
    for name, usual in USUAL_PORTS.items():
        if name not in settled:
            settled[name] = _free_port(remembered.get(name, usual), usual, set(settled.values()))
    return settled


def _free_port(wanted: int, usual: int, taken: set[int]) -> int:
    candidates: list[int] = [wanted, *range(usual, usual + _PORT_TRIES)]
    for port in candidates:
        if port not in taken and is_free(port):
            return port
    raise CapacityError(f"wanted a free port from {usual} on, found none among {_PORT_TRIES}; stop what holds them")


S3 = Literal["minio", "versitygw"]
BUCKET = "gangline"
_MINIO_IS_AFFECTED = (
    "releases of open MinIO write without a signature (GHSA-9c4q-hq6p-c237): gangline store doctor tries this one"
)
_GRAFANA_HOMES = ("/usr/share/grafana", "/opt/grafana", "/opt/homebrew/share/grafana")


@dataclass(frozen=True, kw_only=True, slots=True)
class StackServer:
    """A server as it is to be started; `program` is None where it is not installed."""

    name: str
    kind: str
    program: str | None
    install: str
    url: str
    ready: str
    """Address that answers with one of `answers` once it serves."""
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables of its own; `PATH`, `HOME` and a few others of the caller are added."""
    reads: tuple[Path, ...] = ()
    """Files that it reads at its start alone."""
    answers: tuple[int, ...] = (200,)
    note: str = ""

    @property
    def asked(self) -> str:
        """Digest of all that it is started with; two calls that mean the same server give the same."""
        files = [path.read_bytes().hex() for path in self.reads]
        words = repr((self.program, self.arguments, sorted(self.environ.items()), files))
        return sha256(words.encode()).hexdigest()


def stack_servers(
    home: StackHome, ports: Mapping[str, int], *, s3: S3, environ: Mapping[str, str]
) -> list[StackServer]:
    """All four, in the order in which they are started: the service last, it needs the store."""
    find = partial(find_program, environ=environ)
    return [
        _store(home, ports["s3"], s3, find(s3)),
        _prometheus(home, ports, find("prometheus")),
        _grafana(home, ports, find("grafana")),
        _service(home, ports),
    ]


def choose_s3(wanted: S3 | None, remembered: str, *, environ: Mapping[str, str]) -> S3:
    """The kind of S3 server: `wanted`, else the one that has data here, else versitygw where it is installed."""
    kinds: tuple[S3, ...] = ("versitygw", "minio")
    if wanted is not None:
        return wanted
    known = [kind for kind in kinds if kind == remembered]
    installed = [kind for kind in kinds if find_program(kind, environ=environ)]
    return next(iter((*known, *installed, *kinds)))


def find_program(name: str, *, environ: Mapping[str, str]) -> str | None:
    """Path of a program on the PATH, else in the folder where `make tools` builds servers."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    tools = Path(environ.get("GANGLINE_TOOLS") or cache / "gangline" / "tools" / "bin")
    return shutil.which(name, path=environ.get("PATH", os.defpath)) or shutil.which(name, path=str(tools))


def _store(home: StackHome, port: int, kind: S3, program: str | None) -> StackServer:
    address, data = f"{LOOPBACK}:{port}", home.data(kind)
    credentials = home.secret("s3-root", f"{token_hex(10)}:{token_hex(16)}")
    name, _, secret = credentials.read_text("utf-8").partition(":")
    is_minio = kind == "minio"
    return StackServer(
        name="s3",
        kind=kind,
        program=program,
        install="install versitygw (make tools builds it); runs use a folder until then",
        url=f"http://{address}",
        ready=f"http://{address}/minio/health/live" if is_minio else f"http://{address}/",
        answers=(200,) if is_minio else (200, 403),
        arguments=_minio_arguments(address, str(data))
        if is_minio
        else ("--quiet", "--keep-alive", "--port", address, "posix", str(data)),
        environ=_minio_root(name, secret) if is_minio else {"ROOT_ACCESS_KEY": name, "ROOT_SECRET_KEY": secret},
        note=f"key in {credentials}" + (f"; {_MINIO_IS_AFFECTED}" if is_minio else ""),
    )


def _minio_arguments(address: str, data: str) -> tuple[str, ...]:
    """Words after `minio`; its console listens on a free port of loopback, and is off."""
    return ("server", "--quiet", "--address", address, "--console-address", f"{LOOPBACK}:0", data)


def _minio_root(name: str, secret: str) -> dict[str, str]:
    return {"MINIO_ROOT_USER": name, "MINIO_ROOT_PASSWORD": secret, "MINIO_BROWSER": "off"}


def _prometheus(home: StackHome, ports: Mapping[str, int], program: str | None) -> StackServer:
    address = f"{LOOPBACK}:{ports['prometheus']}"
    return StackServer(
        name="prometheus",
        kind="prometheus",
        program=program,
        install="install prometheus (Debian: apt install prometheus)",
        url=f"http://{address}",
        ready=f"http://{address}/-/ready",
        arguments=(
            f"--config.file={home.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={home.data('prometheus')}",
            f"--web.listen-address={address}",
            "--log.level=warn",
        ),
        reads=(home.folder / "prometheus.yml",),
    )


def _grafana(home: StackHome, ports: Mapping[str, int], program: str | None) -> StackServer:
    address = f"{LOOPBACK}:{ports['grafana']}"
    boards = monitoring_folder() / "grafana"
    password = home.secret("grafana-password")
    homes = [each for each in _GRAFANA_HOMES if Path(each).is_dir()]
    return StackServer(
        name="grafana",
        kind="grafana",
        program=program,
        install="install grafana 11.6 or newer (grafana.com/oss); docs/guides/compose.yaml starts one in a container",
        url=f"http://{address}",
        ready=f"http://{address}/api/health",
        arguments=("server", *(("--homepath", homes[0]) if homes else ())),
        environ={
            "GF_SERVER_HTTP_ADDR": LOOPBACK,
            "GF_SERVER_HTTP_PORT": str(ports["grafana"]),
            "GF_PATHS_DATA": str(home.data("grafana")),
            "GF_PATHS_LOGS": str(home.data("grafana")),
            "GF_PATHS_PROVISIONING": str(boards / "provisioning"),
            "GF_SECURITY_ADMIN_PASSWORD__FILE": str(password),
            "PROMETHEUS_URL": f"http://{LOOPBACK}:{ports['prometheus']}",
            "GANGLINE_BOARDS": str(home.boards),
            "GF_ANALYTICS_REPORTING_ENABLED": "false",  # it sends no usage data
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
            "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
            "GF_NEWS_NEWS_FEED_ENABLED": "false",
        },
        note=f"admin, password in {password}",
    )


def _service(home: StackHome, ports: Mapping[str, int]) -> StackServer:
    address = f"{LOOPBACK}:{ports['service']}"
    return StackServer(
        name="service",
        kind="gangline serve",
        program=sys.executable if find_spec("fastapi") and find_spec("uvicorn") else None,
        install="pip install 'gangline[serve]'",
        url=f"http://{address}",
        ready=f"http://{address}/healthz",
        arguments=("-m", "gangline", "serve", "--site", str(home.site), "--repo", str(home.repo)),
        reads=(home.site,),
        note=f"login link in {home.log('service')}",
    )


def service_database(home: StackHome) -> Path:
    """Path of the state database of the stack's service."""
    return home.data("service") / "serve.db"


def scrape_token(home: StackHome) -> Path:
    """File of the token; the service's database has its digest before the service starts, a new database, too.

    Raises:
        IntegrityError: The database is damaged.
        StorageError: It cannot be opened.
    """
    from gangline.serve.database.open import open_database

    path = home.secret("prometheus-token", new_token())
    with contextlib.suppress(NotInstalledError):  # the service, which is reported as absent
        opened = open_database(str(service_database(home)))
        try:
            reader = Principal(name="prometheus", roles={"*": "reader"})
            opened.tokens.add(digest=digest_of(path.read_text("utf-8")), principal=reader, expires=None, now=time())
        finally:
            opened.close()
    return path


SCRAPE_SECONDS = 5
DRIVER_PORT = 9399
"""Or the next free one: drivers look for themselves, and announce what they found."""


def write_prometheus(home: StackHome, ports: Mapping[str, int], monitoring: Path) -> None:
    """`prometheus.yml`: what gangs and drivers of this machine announce, the service, the rules of this project."""
    text = render_prometheus(home, ports, monitoring / "prometheus", token=scrape_token(home))
    write_private(home.folder / "prometheus.yml", text)


def render_prometheus(home: StackHome, ports: Mapping[str, int], rules: Path, *, token: Path) -> str:
    """YAML; each value is a JSON string or list, which YAML reads alike. `token` is named, never read here."""
    rule_files = [str(rules / kind / "*.yml") for kind in ("rules", "alerts")]
    found = f"file_sd_configs: [{{files: {json.dumps([str(home.targets / '*.json')])}, refresh_interval: 5s}}]"
    service, itself = (
        f"static_configs: [{{targets: {json.dumps([f'{LOOPBACK}:{ports[name]}'])}}}]"
        for name in ("service", "prometheus")
    )
    return f"""\
global: {{scrape_interval: {SCRAPE_SECONDS}s, evaluation_interval: {SCRAPE_SECONDS}s}}
rule_files: {json.dumps(rule_files)}
scrape_configs:
  - job_name: gangline
    {found}
  - job_name: gangline-serve
    authorization: {{credentials_file: {json.dumps(str(token))}}}
    {service}
  - job_name: prometheus
    {itself}
"""


def write_boards(home: StackHome, ports: Mapping[str, int], monitoring: Path) -> None:
    """The boards as Grafana provisions them; their links lead to this stack's service."""
    home.boards.mkdir(exist_ok=True)
    usual, ours = (f'"http://{LOOPBACK}:{port}"' for port in (USUAL_PORTS["service"], ports["service"]))
    for board in sorted((monitoring / "grafana" / "dashboards").glob("*.json")):
        (home.boards / board.name).write_text(board.read_text("utf-8").replace(usual, ours), "utf-8")


def write_site(home: StackHome, ports: Mapping[str, int], *, there: Collection[str], drive: bool) -> None:
    """`site.toml` of the stack.

    Args:
        there: Names of servers; without `s3` records lie in a folder of the stack.
        drive: The service runs new commits of the repository by itself.
    """
    write_private(home.site, render_site(home, ports, there=there, drive=drive))


def render_site(home: StackHome, ports: Mapping[str, int], *, there: Collection[str], drive: bool) -> str:
    """TOML text that `spec.config.load` accepts; it holds no secret."""
    tables: dict[str, dict[str, object]] = {
        "store": _store_table(home, ports, with_s3="s3" in there),
        "serve": {
            "listen": f"{LOOPBACK}:{ports['service']}",
            "home": str(home.data("service")),
            "database": str(service_database(home)),
            "this_repository": drive,
        },
        "serve.repositories": {load_line(home.repo / "line.toml").project.name: str(home.repo)} if drive else {},
        "metrics": {
            "driver_port": DRIVER_PORT,
            "targets": str(home.targets),
            **({"grafana_url": f"http://{LOOPBACK}:{ports['grafana']}"} if "grafana" in there else {}),
        },
    }
    head = "# Written by `gangline up`, and again by the next one; export GANGLINE_SITE to it.\n"
    return head + "\n".join(_table(name, rows) for name, rows in tables.items() if rows)


def _store_table(home: StackHome, ports: Mapping[str, int], *, with_s3: bool) -> dict[str, object]:
    if not with_s3:
        return {"url": f"file:{home.data('store')}"}
    return {
        "url": f"s3://{BUCKET}/line",
        "endpoint": f"http://{LOOPBACK}:{ports['s3']}",
        "credentials": f"secret:file:{home.folder / 's3-root'}",
    }


def _table(name: str, rows: Mapping[str, object]) -> str:
    """A TOML table of strings and numbers; JSON writes both as TOML reads them."""
    return "\n".join((f"[{name}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in rows.items()), ""))

"""Configuration files of the servers: Prometheus and its scrape token, Grafana dashboards, site.toml."""

import contextlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from time import time

from gangline.errors import NotInstalledError
from gangline.launch.local.scrape_targets import LOOPBACK
from gangline.serve.context.accounts import digest_of, new_token
from gangline.serve.database.types import Principal
from gangline.spec.config.load import load_line
from gangline.stack.home import StackHome, write_private
from gangline.stack.servers import BUCKET, USUAL_PORTS


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
        "store": _store(home, ports, with_s3="s3" in there),
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


def _store(home: StackHome, ports: Mapping[str, int], *, with_s3: bool) -> dict[str, object]:
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

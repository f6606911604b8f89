"""The stack as a compose file over the files that `up` writes, for container engines; adds Jenkins.

Every server listens on this machine's loopback alone (the host's network), so one site.toml fits both ways of starting
them. Images are named by version.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from gangline.errors import StorageError, UsageError
from gangline.launch.local.scrape_targets import LOOPBACK
from gangline.stack import config_files, processes
from gangline.stack.home import StackHome, StackState, write_private
from gangline.stack.lifecycle import prepare
from gangline.stack.servers import (
    GRAFANA_QUIET,
    minio_arguments,
    monitoring_folder,
    s3_root,
    versitygw_arguments,
)

VERSITYGW = "versity/versitygw:v1.8.0"
MINIO = "minio/minio:RELEASE.2024-10-13T13-34-11Z"
"""Release for data that it wrote here before, alone: it writes without a signature, as all later ones do."""
PROMETHEUS = "prom/prometheus:v2.53.2"
GRAFANA = "grafana/grafana:11.6.0"
JENKINS = "jenkins/jenkins:2.568.1-lts-jdk21"
JENKINS_PORT = 8080
_HEAD = """\
# Written by `gangline up --compose`; paths are those of this machine.
#   docker compose -f FILE up -d                      S3, Prometheus, Grafana, on loopback
#   docker compose -f FILE --profile jenkins up -d    Jenkins, too: it needs the variables and secrets of jenkins/casc
# Tags move. To pin an image, pull it, ask `docker image inspect --format '{{index .RepoDigests 0}}' IMAGE`, and write
# the answer (name@sha256:...) in place of the tag.
"""


def write_compose(home: StackHome, file: Path, *, environ: Mapping[str, str]) -> None:
    """Write `file`, and below `.gangline/up` what its servers read; the site uses the S3 server.

    Raises:
        UsageError: Servers of the stack run without an engine; both would want the same ports.
        StorageError: `file` cannot be written.
    """
    home.make()
    with home.held():
        state = home.read()
        running = ", ".join(name for name, each in state.running.items() if processes.is_running(each))
        if running:
            raise UsageError(f"wanted no server of {home.folder} to run, found {running}; gangline down stops them")
        prepare(home, state, "minio" if state.s3 == "minio" else "versitygw", environ=environ, drive=False)
        config_files.write_site(home, state.ports, there=("s3", "prometheus", "grafana"), drive=False)
        home.write(state)
    (home.folder / "jenkins-secrets").mkdir(exist_ok=True)
    for who in ("admin", "maintainer"):
        home.secret(f"jenkins-secrets/{who}-password")
    try:
        file.write_text(render_compose(home, state), "utf-8")
    except OSError as error:
        raise StorageError(f"wanted to write {file}, found: {error}; name a file in a folder that is there") from error


def render_compose(home: StackHome, state: StackState) -> str:
    """YAML of two levels; what is deeper is JSON, a part of YAML that needs no quoting rules of its own."""
    services = {
        "s3": _minio(home, state.ports["s3"]) if state.s3 == "minio" else _versitygw(home, state.ports["s3"]),
        "prometheus": _prometheus(home, state.ports["prometheus"]),
        "grafana": _grafana(home, state.ports),
        "jenkins": _jenkins(home),
    }
    return "\n".join([_HEAD + "services:", *(_yaml(name, words) for name, words in services.items()), ""])


def _yaml(name: str, words: Mapping[str, object]) -> str:
    lines = [f"  {name}:"]
    for key, value in words.items():
        if isinstance(value, list):
            lines += [f"    {key}:", *(f"      - {json.dumps(each)}" for each in value)]
        elif isinstance(value, dict):
            lines += [f"    {key}:", *(f"      {inner}: {json.dumps(each)}" for inner, each in value.items())]
        else:
            lines.append(f"    {key}: {json.dumps(value)}")
    return "\n".join(lines)


def _versitygw(home: StackHome, port: int) -> dict[str, object]:
    return {
        **_alike(VERSITYGW),
        "command": [*versitygw_arguments(f"{LOOPBACK}:{port}", "/data")],
        "env_file": [_root_variables(home, "ROOT_ACCESS_KEY", "ROOT_SECRET_KEY")],
        "volumes": [_shown(home.data("versitygw"), "/data", writable=True)],
    }


def _minio(home: StackHome, port: int) -> dict[str, object]:
    return {
        **_alike(MINIO),
        "command": [*minio_arguments(f"{LOOPBACK}:{port}", "/data")],
        "environment": {"MINIO_BROWSER": "off"},
        "env_file": [_root_variables(home, "MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD")],
        "volumes": [_shown(home.data("minio"), "/data", writable=True)],
    }


def _root_variables(home: StackHome, for_name: str, for_secret: str) -> str:
    """File with the root key under the variables that a server reads, since neither reads it from a file."""
    name, secret, _ = s3_root(home)
    path = home.folder / "s3-root.env"
    write_private(path, f"{for_name}={name}\n{for_secret}={secret}\n")
    return str(path)


def _prometheus(home: StackHome, port: int) -> dict[str, object]:
    rules = monitoring_folder() / "prometheus"
    return {
        **_alike(PROMETHEUS),
        "command": [
            "--config.file=/etc/prometheus/prometheus.yml",
            "--storage.tsdb.path=/data",
            f"--web.listen-address={LOOPBACK}:{port}",
        ],
        "volumes": [
            _shown(home.folder / "prometheus.yml", "/etc/prometheus/prometheus.yml"),
            _shown(rules, str(rules)),
            _shown(home.folder / "prometheus-token", str(home.folder / "prometheus-token")),
            _shown(home.targets, str(home.targets)),
            _shown(home.data("prometheus"), "/data", writable=True),
        ],
    }


def _grafana(home: StackHome, ports: Mapping[str, int]) -> dict[str, object]:
    boards = monitoring_folder() / "grafana"
    return {
        **_alike(GRAFANA),
        "environment": {
            "GF_SERVER_HTTP_ADDR": LOOPBACK,
            "GF_SERVER_HTTP_PORT": str(ports["grafana"]),
            "GF_SECURITY_ADMIN_PASSWORD__FILE": "/run/grafana-password",
            "PROMETHEUS_URL": f"http://{LOOPBACK}:{ports['prometheus']}",
            "GANGLINE_BOARDS": "/boards",
            **GRAFANA_QUIET,
        },
        "volumes": [
            _shown(home.secret("grafana-password"), "/run/grafana-password"),
            _shown(boards / "provisioning", "/etc/grafana/provisioning"),
            _shown(home.boards, "/boards"),
            _shown(home.data("grafana"), "/var/lib/grafana", writable=True),
        ],
    }


def _jenkins(home: StackHome) -> dict[str, object]:
    jenkins = monitoring_folder().parent / "jenkins"
    build = f"FROM {JENKINS}\nCOPY plugins.txt /plugins.txt\nRUN jenkins-plugin-cli --plugin-file /plugins.txt\n"
    return {
        **{name: value for name, value in _alike(JENKINS).items() if name != "image"},
        "profiles": ["jenkins"],
        "build": {"context": str(jenkins / "casc"), "dockerfile_inline": build},
        "environment": {
            "JENKINS_OPTS": f"--httpListenAddress={LOOPBACK} --httpPort={JENKINS_PORT}",
            "JAVA_OPTS": "-Djenkins.install.runSetupWizard=false",
            "JENKINS_SLAVE_AGENT_PORT": "-1",  # its image opens 50000 on every address; agents call in by web socket
            "CASC_JENKINS_CONFIG": "/etc/jenkins/casc/jenkins.yaml,/etc/jenkins/plain/agent.yaml",
            "CASC_STRICT_SECRET_RESOLUTION": "true",
            "JENKINS_URL": f"http://{LOOPBACK}:{JENKINS_PORT}/",
            "PLAIN_AGENT_HOME": str(home.folder / "jenkins-agent"),
            # of the environment of `docker compose`: without one of them Jenkins reports it and does not start
            **dict.fromkeys(("FORGE_OWNER", "FORGE_REPOSITORY", "LIBRARY_REPOSITORY")),
        },
        "volumes": [
            _shown(jenkins / "casc", "/etc/jenkins/casc"),
            _shown(jenkins / "plain", "/etc/jenkins/plain"),
            _shown(home.folder / "jenkins-secrets", "/run/secrets"),
        ],
    }


def _alike(image: str) -> dict[str, object]:
    """Keys of every server: it runs as this user, so that data and keys keep their owner; nothing can gain rights."""
    return {
        "image": image,
        "user": f"{os.getuid()}:{os.getgid()}",
        "network_mode": "host",
        "restart": "unless-stopped",
        "security_opt": ["no-new-privileges:true"],
        "cap_drop": ["ALL"],
    }


def _shown(path: Path, inside: str, *, writable: bool = False) -> dict[str, object]:
    """A file or folder of this machine in the container; one that is missing is refused, not made by the engine."""
    return {
        "type": "bind", "source": str(path), "target": inside, "read_only": not writable,
        "bind": {"create_host_path": False},
    }  # fmt: skip

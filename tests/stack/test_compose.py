"""The compose file of the guide: loopback only, images by tag, keys by file, and all that it mounts is there."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.jenkins.files import CONTROLLER, PLAIN
from tests.line.repositories import make_repository

from gangline.serve.context.accounts import digest_of
from gangline.serve.database.open import open_database
from gangline.spec.config.load import load_site
from gangline.spec.config.secrets import resolve_secret
from gangline.stack.servers import BUCKET, USUAL_PORTS

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def services(folder="/stack"):
    text = (GUIDES / "compose.yaml").read_text()
    return yaml.safe_load(re.sub(r"\$\{GANGLINE_STACK(:[^}]*)?\}", folder, text))["services"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder as the commands of the guide make it."""
    folder = tmp_path_factory.mktemp("stack")
    repo = make_repository(folder / "repo")
    guide = (GUIDES / "local-stack.md").read_text().partition("## With a container engine")[2]
    site, commands = re.findall(r"```(?:toml|console)\n(.*?)```", guide, re.DOTALL)
    stack = folder / "state"
    stack.mkdir()
    (folder / "site.toml").write_text(site.replace("/srv/gangline", str(stack)))
    script = "\n".join(line.removeprefix("$ ") for line in commands.replace("/srv/gangline", str(stack)).splitlines())
    environ = {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "HOME": str(folder), "GANGLINE_SITE": str(folder / "site.toml"),
    }  # fmt: skip
    subprocess.run(["bash", "-euc", script.partition("docker compose")[0]], cwd=repo, env=environ, check=True)
    return stack


def test_every_server_listens_on_loopback_alone_and_can_gain_no_right():
    assert set(services()) == {"s3", "prometheus", "grafana", "jenkins"}
    for service in services().values():
        assert service["network_mode"] == "host"
        assert "ports" not in service
        assert "127.0.0.1" in f"{service.get('command')} {service.get('environment')}"
        assert service["cap_drop"] == ["ALL"]
        assert "0.0.0.0" not in str(service)


def test_images_are_those_of_the_advisories_by_version():
    images = [each["image"] for each in services().values() if "image" in each]
    images.append(services()["jenkins"]["build"]["dockerfile_inline"].split()[1])
    assert len(images) == 4
    advisories = (GUIDES.parent / "contributing" / "advisories.md").read_text().lower()
    for image in images:
        name, _, tag = image.rpartition("/")[2].partition(":")
        version = re.match(r"v?(\d+\.\d+\.\d+)", tag)
        assert version, image
        assert re.search(rf"\| {name} \| {re.escape(version[1])}, .*compose", advisories), image


def test_servers_have_the_ports_of_the_stack():
    ports = USUAL_PORTS | {"jenkins": 8080}
    for name, service in services().items():
        words = f"{service.get('command')} {service.get('environment')}"
        assert re.search(rf"127\.0\.0\.1:{ports[name]}\b|PORT': '{ports[name]}'", words), name


def test_what_it_mounts_is_there_and_keys_are_private(made):
    data = {str(made / name) for name in ("s3", "prometheus", "grafana")}
    for service in services(str(made)).values():
        for mount in service["volumes"]:
            assert (GUIDES / mount["source"]).exists(), mount
            assert mount["bind"] == {"create_host_path": False}
            assert mount.get("read_only", False) == (mount["source"] not in data), mount
    keys = [path for path in made.rglob("*") if path.is_file() and not path.name.startswith("serve.db")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    assert len({path.read_text() for path in keys}) == len(keys) == 6


def test_the_site_of_the_guide_fits_the_servers(made):
    site = load_site(made.parent / "site.toml", environ={})
    found = services(str(made))
    assert site.store.endpoint.removeprefix("http://") in found["s3"]["command"]
    assert (made / "s3" / BUCKET).is_dir()
    name, _, secret = resolve_secret(site.store.credentials, {}).partition(":")
    (variables,) = found["s3"]["env_file"]
    assert Path(variables).read_text() == f"ROOT_ACCESS_KEY={name}\nROOT_SECRET_KEY={secret}\n"
    assert found["grafana"]["environment"]["GF_SERVER_HTTP_PORT"] == site.metrics.grafana_url.rpartition(":")[2]
    (targets,) = [each for each in found["prometheus"]["volumes"] if each["target"] == "/var/lib/gangline/targets"]
    assert targets["source"] == site.metrics.targets
    database = open_database(site.serve.database)
    assert (
        database.tokens.find(digest_of((made / "prometheus-token").read_text().strip()), now=1.0).name == "prometheus"
    )
    database.close()


def test_jenkins_does_not_start_without_the_variables_of_its_configuration():
    """Passed on as they are: one that is not set stays so, and the configuration plugin ends the start."""
    environment = services()["jenkins"]["environment"]
    wanted = set(re.findall(r"\$\{([A-Z_]+)\}", CONTROLLER.read_text() + PLAIN.read_text()))
    assert wanted <= set(environment)
    assert {name for name in wanted if environment[name] is None} == {
        "FORGE_OWNER", "FORGE_REPOSITORY", "LIBRARY_REPOSITORY",
    }  # fmt: skip
    assert environment["CASC_STRICT_SECRET_RESOLUTION"] == "true"


def test_jenkins_has_a_plain_agent_to_build_on():
    environment = services()["jenkins"]["environment"]
    mounts = {each["target"] for each in services()["jenkins"]["volumes"]}
    files = environment["CASC_JENKINS_CONFIG"].split(",")
    assert files == ["/etc/jenkins/casc/jenkins.yaml", "/etc/jenkins/plain/agent.yaml"]
    assert {str(Path(file).parent) for file in files} <= mounts
    assert not mounts & {"/etc/jenkins/agents", "/etc/jenkins/pods"}


def test_jenkins_opens_no_port_for_agents():
    """Its image asks for 50000 on every address, and the configuration is read after that."""
    assert services()["jenkins"]["environment"]["JENKINS_SLAVE_AGENT_PORT"] == "-1"

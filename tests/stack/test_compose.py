"""The compose file: loopback only, images by tag, keys by file, and every path it mounts is there."""

import os
import re
import stat
from pathlib import Path

import pytest
import yaml
from tests.jenkins.files import CONTROLLER, PLAIN

from gangline.errors import StorageError, UsageError
from gangline.spec.config.load import load_site
from gangline.stack.compose import write_compose
from gangline.stack.lifecycle import bring_up, take_down


@pytest.fixture
def composed(machine, tmp_path):
    write_compose(machine.home, tmp_path / "compose.yaml", environ=os.environ)
    return yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]


def test_every_server_listens_on_loopback_alone_and_can_gain_no_right(composed):
    assert set(composed) == {"s3", "prometheus", "grafana", "jenkins"}
    for service in composed.values():
        assert service["network_mode"] == "host"
        assert "ports" not in service
        assert "127.0.0.1" in f"{service.get('command')} {service.get('environment')}"
        assert service["cap_drop"] == ["ALL"]
        assert "0.0.0.0" not in str(service)


def test_images_are_named_by_a_tag_that_is_a_version(composed):
    images = [each["image"] for each in composed.values() if "image" in each]
    images.append(composed["jenkins"]["build"]["dockerfile_inline"].split()[1])
    assert len(images) == 4
    for image in images:
        tag = image.partition(":")[2]
        assert any(figure.isdigit() for figure in tag), image
        assert tag != "latest"


def test_what_is_mounted_is_there_and_keys_are_private(composed):
    mounts = [Path(each["source"]) for service in composed.values() for each in service["volumes"]]
    assert all(path.exists() for path in mounts)
    mounts += map(Path, composed["s3"]["env_file"])
    for key in ("s3-root.env", "grafana-password"):
        (path,) = {path for path in mounts if path.name == key}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_key_is_in_the_file(machine, composed):
    folder = machine.home.folder
    keys = [*(folder / "s3-root").read_text().split(":"), (folder / "grafana-password").read_text()]
    keys += [(folder / f"jenkins-secrets/{who}-password").read_text() for who in ("admin", "maintainer")]
    assert len(set(keys)) == 5
    assert not any(key in str(composed) for key in keys)


def test_the_store_is_versitygw_with_the_root_key_of_the_site(machine, composed):
    assert composed["s3"]["image"].startswith("versity/versitygw:")
    name, secret = (machine.home.folder / "s3-root").read_text().split(":")
    (variables,) = composed["s3"]["env_file"]
    assert Path(variables).read_text() == f"ROOT_ACCESS_KEY={name}\nROOT_SECRET_KEY={secret}\n"
    assert load_site(machine.home.site, environ={}).store.credentials == f"secret:file:{machine.home.folder}/s3-root"


def test_data_that_minio_wrote_keep_their_server(machine, tmp_path):
    machine.install("minio")
    bring_up(machine.home, environ=os.environ, s3="minio")
    take_down(machine.home)
    write_compose(machine.home, tmp_path / "compose.yaml", environ=os.environ)
    s3 = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]["s3"]
    assert s3["image"].startswith("minio/minio:")
    assert s3["volumes"][0]["source"] == str(machine.home.data("minio"))


def test_jenkins_does_not_start_without_the_variables_of_its_configuration(composed):
    """Passed on as they are: one that is not set stays so, and the configuration plugin ends the start."""
    environment = composed["jenkins"]["environment"]
    wanted = set(re.findall(r"\$\{([A-Z_]+)\}", CONTROLLER.read_text() + PLAIN.read_text()))
    assert wanted <= set(environment)
    assert {name for name in wanted if environment[name] is None} == {
        "FORGE_OWNER", "FORGE_REPOSITORY", "LIBRARY_REPOSITORY",
    }  # fmt: skip
    assert environment["CASC_STRICT_SECRET_RESOLUTION"] == "true"


def test_jenkins_has_a_plain_agent_to_build_on(composed):
    environment = composed["jenkins"]["environment"]
    mounts = {each["target"] for each in composed["jenkins"]["volumes"]}
    files = environment["CASC_JENKINS_CONFIG"].split(",")
    assert files == ["/etc/jenkins/casc/jenkins.yaml", "/etc/jenkins/plain/agent.yaml"]
    assert {str(Path(file).parent) for file in files} <= mounts
    assert not mounts & {"/etc/jenkins/agents", "/etc/jenkins/pods"}


def test_jenkins_opens_no_port_for_agents(composed):
    """Its image asks for 50000 on every address, and the configuration is read after that."""
    assert composed["jenkins"]["environment"]["JENKINS_SLAVE_AGENT_PORT"] == "-1"


def test_the_site_fits_the_servers(machine, composed):
    site = load_site(machine.home.site, environ={})
    assert site.store.endpoint.removeprefix("http://") in composed["s3"]["command"]
    port = site.metrics.grafana_url.rpartition(":")[2]
    assert composed["grafana"]["environment"]["GF_SERVER_HTTP_PORT"] == port


def test_a_file_that_cannot_be_written_is_said_to_be(machine, tmp_path):
    with pytest.raises(StorageError, match="name a file in a folder that is there"):
        write_compose(machine.home, tmp_path / "none" / "compose.yaml", environ=os.environ)


def test_servers_that_run_without_an_engine_are_stopped_first(machine, tmp_path):
    machine.install("prometheus")
    bring_up(machine.home, environ=os.environ)
    with pytest.raises(UsageError, match="found prometheus; gangline down stops them"):
        write_compose(machine.home, tmp_path / "compose.yaml", environ=os.environ)
    assert not (tmp_path / "compose.yaml").exists()

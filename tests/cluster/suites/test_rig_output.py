"""What the rig tells of itself: lines for a shell, a site for lines."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.rig.site import make_site

from gangline.spec.config.load import load_text
from gangline.spec.config.site import Site

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def own(cluster):
    if not cluster.is_own:
        pytest.skip("the rig tells of the project's own cluster")


def test_environment_is_lines_for_a_shell_and_nothing_else():
    command = [sys.executable, "-m", "tests.cluster.rig", "env"]
    reported = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert all(line.startswith("export ") for line in reported)
    names = {line.removeprefix("export ").partition("=")[0] for line in reported}
    assert {"KUBECONFIG", "PATH", "GANGLINE_TEST_KUBECONFIG", "GANGLINE_TEST_IMAGE"} <= names


def test_site_is_read_as_one_and_holds_no_secret(cluster, namespace, tmp_path):
    assert cluster.train_image
    path = tmp_path / "site.toml"
    path.write_text(make_site(namespace))
    site = load_text(Site, path.read_text(), file=str(path))
    assert (site.launch.target, site.launch.namespace) == ("kubernetes", namespace)
    assert site.registry.base.startswith("gangline.test/train@sha256:")
    assert cluster.credentials.partition(":")[2] not in path.read_text()

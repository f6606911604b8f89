"""Who we are to which server: kubeconfigs, plugins that give tokens, pods, proxies."""

import json
import sys

import pytest
import yaml
from kubernetes.client.configuration import Configuration
from tests.cluster.fake.front import kubeconfig, serving
from tests.cluster.fake.server import FakeServer
from tests.cluster.faults.proxy.certificates import write_certificates

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client import auth as module
from gangline.launch.kubernetes.client.auth import sign_in
from gangline.launch.kubernetes.client.client import connect

URL = "http://127.0.0.1:1"


def test_plugin_of_a_kubeconfig_gives_the_token(tmp_path):
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "of-plugin"},
    }
    plugin = tmp_path / "plugin.py"
    plugin.write_text(f"print({json.dumps(json.dumps(credential))})")
    command = {"apiVersion": credential["apiVersion"], "command": sys.executable, "args": [str(plugin)]}
    with serving(FakeServer(), tokens={"of-plugin"}) as url:
        path = kubeconfig(tmp_path / "config", url, user={"exec": {**command, "interactiveMode": "Never"}})
        assert connect({"KUBECONFIG": str(path)}).get("/api/v1/namespaces/default") is not None


def test_pod_without_a_kubeconfig_is_its_own_account(tmp_path, monkeypatch):
    ca, _ = write_certificates(tmp_path)
    ca.rename(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("of-pod")
    (tmp_path / "namespace").write_text("gangs\n")
    monkeypatch.setattr(module, "_ACCOUNT", tmp_path)
    environ = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    session = sign_in(environ)
    assert (session.server, session.namespace) == ("https://10.0.0.1:443", "gangs")
    assert session.headers() == {"Authorization": "bearer of-pod"}


def test_kubeconfig_comes_before_the_pod(tmp_path):
    path = kubeconfig(tmp_path / "config", URL)
    environ = {"KUBECONFIG": str(path), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert sign_in(environ).server == URL


def test_context_without_a_namespace_means_default(tmp_path):
    path = kubeconfig(tmp_path / "config", URL)
    config = yaml.safe_load(path.read_text())
    del config["contexts"][0]["context"]["namespace"]
    path.write_text(yaml.safe_dump(config))
    assert sign_in({"KUBECONFIG": str(path)}).namespace == "default"


def test_release_that_adds_its_token_to_no_request_is_refused(tmp_path, monkeypatch):
    """As kubernetes 36.0.0: the loader stores a token under a name that `auth_settings` does not read."""
    path = kubeconfig(tmp_path / "config", URL, user={"token": "of-file"})
    assert sign_in({"KUBECONFIG": str(path)}).headers() == {"Authorization": "Bearer of-file"}
    monkeypatch.setattr(Configuration, "auth_settings", lambda _self: {})
    with pytest.raises(ConfigError, match=r"kubernetes \d+\.\d+\.\d+ has a token .* and adds it to no request"):
        sign_in({"KUBECONFIG": str(path)})


def test_pool_has_room_for_as_many_requests_as_the_launcher_sends_at_once(tmp_path):
    path = kubeconfig(tmp_path / "config", URL)
    assert sign_in({"KUBECONFIG": str(path)}).http.pool.connection_pool_kw["maxsize"] == 64


@pytest.mark.parametrize(
    ("server", "proxied"), [("https://k.example", True), ("https://127.0.0.1:1", False), ("https://localhost:1", False)]
)
def test_proxy_of_the_environment_is_used_but_for_this_machine(tmp_path, server, proxied):
    path = kubeconfig(tmp_path / "config", server)
    session = sign_in({"KUBECONFIG": str(path), "HTTPS_PROXY": "http://proxy.example:3128"})
    assert (session.http.pool.proxy is not None) is proxied


@pytest.mark.parametrize("text", ["", "[]", "just a word", "contexts: 7", "{apiVersion: v1, kind: Config}", "a: [b"])
def test_kubeconfig_that_is_none_is_a_sentence(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match="kubeconfig"):
        sign_in({"KUBECONFIG": str(path)})

"""`site.toml`: where it is found, what is refused, and that no message repeats a secret."""

from pathlib import Path

import pytest

from gangline.errors import ConfigError
from gangline.spec.config.load import load_site, load_text
from gangline.spec.config.problems import FileError
from gangline.spec.config.site import Site

CLUSTER = """
store.url         = "s3://mlops/gangline"
store.endpoint    = "https://minio.example:9000"
store.credentials = "secret:k8s:gangline/store"
registry  = { image = "registry.example/mlops/gangline", builder = "buildkit" }
launch    = { target = "kubernetes", namespace = "gangs", queue = "shared" }
limits    = { gpu_hours_per_run = 500 }
[forge.ours]
kind = "github"
projects = { "team/bytegpt" = "bytegpt" }
token = "secret:k8s:forge/token"
hook_secret = "secret:k8s:forge/hook"
[gpu.a100]
memory_bytes = 80e9
flops_per_second = { bf16 = 140e12 }
price_per_hour = 2.00
"""
CANARY = "AKIA-canary-of-a-secret"


def problems(text: str) -> list[str]:
    with pytest.raises(FileError) as caught:
        load_text(Site, text, file="site.toml")
    assert CANARY not in str(caught.value)
    return [str(problem) for problem in caught.value.problems]


def test_site_of_a_cluster_is_read():
    site = load_text(Site, CLUSTER, file="site.toml")
    assert site.forge["ours"].projects == {"team/bytegpt": "bytegpt"}
    assert site.gpu["a100"].reserve_bytes == 4e9


def test_without_a_file_the_defaults_are_a_site(tmp_path):
    assert load_site(environ={"HOME": str(tmp_path)}) == Site()


def write(path: Path, currency: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[money]\ncurrency = "{currency}"\n')
    return path


def test_argument_goes_before_variable_before_configuration_folder(tmp_path):
    named = write(tmp_path / "named.toml", "AAA")
    variable = write(tmp_path / "variable.toml", "BBB")
    write(tmp_path / "config" / "gangline" / "site.toml", "CCC")
    write(tmp_path / "home" / ".config" / "gangline" / "site.toml", "DDD")
    environ = {"HOME": str(tmp_path / "home")}
    assert load_site(environ=environ).money.currency == "DDD"
    environ["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    assert load_site(environ=environ).money.currency == "CCC"
    environ["GANGLINE_SITE"] = str(variable)
    assert load_site(environ=environ).money.currency == "BBB"
    assert load_site(named, environ=environ).money.currency == "AAA"


@pytest.mark.parametrize("name", ["aws:role", "aws:profile:lab.eu", "aws:cli", "aws:cli:sso-admin@corp"])
def test_store_takes_an_identity_of_aws(tmp_path, name):
    (tmp_path / "site.toml").write_text(
        f'store = {{ url = "s3://b", endpoint = "https://s3.x", credentials = "{name}" }}'
    )
    assert load_site(tmp_path / "site.toml", environ={}).store.credentials == name


def test_site_that_was_named_has_to_be_there(tmp_path):
    with pytest.raises(ConfigError, match="readable file"):
        load_site(tmp_path / "none.toml", environ={})
    with pytest.raises(ConfigError, match="readable file"):
        load_site(environ={"GANGLINE_SITE": str(tmp_path / "none.toml")})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("store.url", "store = { url = 'ftp://x' }"),
        ("store.endpoint", "store = { url = 's3://bucket/a' }"),
        ("store.credentials", f"store = {{ credentials = '{CANARY}' }}"),
        ("store.credentials", f"store = {{ credentials = ['{CANARY}'] }}"),
        ("store.credentials", "store = { credentials = 'aws:moon' }"),
        ("store.credentials", "store = { credentials = 'aws:profile:' }"),
        ("store.endpoint", f"store = {{ endpoint = 'https://user:{CANARY}@host' }}"),
        ("registry.base", "registry = { base = 'python:3.11' }"),
        ("registry.image", "registry = { builder = 'docker' }"),
        ("launch.namespace", "launch = { namespace = 'A B' }"),
        ("launch.target", "launch = { target = 'moon' }"),
        ("launch.target", "launch = { target = 'lsf' }"),
        ("slurm.shared", "launch = { target = 'slurm' }"),
        ("gpu.a", "[gpu.a]\nmemory_bytes = 1e9"),
        ("gpu.a.price_per_hour", "[gpu.a]\nmemory_bytes = 80e9\nprice_per_hour = -1"),
        ("gpu.a.price_per_hour", "[gpu.a]\nmemory_bytes = 80e9\nprice_per_hour = 1e300"),
        ("gpu.a.memory_bytes", "[gpu.a]\nmemory_bytes = 1e300"),
        ("gpu.a.flops_per_second.bf16", "[gpu.a]\nmemory_bytes = 80e9\nflops_per_second = { bf16 = 1e-300 }"),
        ("gpu.a.network_bytes_per_second", "[gpu.a]\nmemory_bytes = 80e9\nnetwork_bytes_per_second = 1e-300"),
        ("plan.restart_seconds", "plan = { restart_seconds = 1e300 }"),
        ("plan.failures.gpu_hours", "plan = { failures = { gpu_hours = 1e-3 } }"),
        ("plan.storage.a", "plan = { storage = { a = 1e-300 }, saves_to = 'a' }"),
        ("plan.band", "plan = { band = 2 }"),
        ("money.currency", "money = { currency = 'euro' }"),
        ("sign.key", f"sign = {{ key = '{CANARY}' }}"),
        ("limits.money_per_run", "limits = { money_per_run = -1 }"),
        ("limits.active_runs", "limits = { active_runs = 0 }"),
        ("limits.tracked_bytes", "limits = { tracked_bytes = 0 }"),
        ("forge.a.token", f"[forge.a]\nkind = 'gitea'\ntoken = '{CANARY}'"),
        ("forge.b.projects.y", "[forge.a]\nkind='gitea'\nprojects={x='p'}\n[forge.b]\nkind='github'\nprojects={y='p'}"),
        ("track.a.token", f"[track.a]\nkind = 'wandb'\ntoken = '{CANARY}'"),
        ("track.a.url", "[track.a]\nkind = 'mlflow'"),
        ("track.a.url", f"[track.a]\nkind = 'wandb'\nurl = 'https://me:{CANARY}@host'"),
        ("track.A", "[track.A]\nkind = 'wandb'"),
        ("track.a.kind", "[track.a]\nkind = 'aim'"),
        ("track.a.mode", "[track.a]\nkind = 'wandb'\nmode = 'disabled'"),
        ("track.a.models", "[track.a]\nkind = 'wandb'\nmodels = true"),
        ("track.a.programs", "[track.a]\nkind = 'tensorboard'\nprograms = true"),
        ("track.a.path", "[track.a]\nkind = 'tensorboard'\npath = 'runs'"),
        ("track.a.python", "[track.a]\nkind = 'wandb'\npython = 'python3'"),
        ("track.a.every_seconds", "[track.a]\nkind = 'wandb'\nevery_seconds = 0"),
        ("track.a.experiment", "[track.a]\nkind = 'wandb'\nexperiment = '{user}'"),
        ("track.a.experiment", "[track.a]\nkind = 'wandb'\nexperiment = ' '"),
        ("track.a.modles", "[track.a]\nkind = 'wandb'\nmodles = true"),
        ("serve.listen", "serve = { listen = 'here' }"),
        ("serve.tokens", "serve = { listen = '0.0.0.0:80' }"),
        ("serve.proxies[0]", "serve = { proxies = ['10.0.0.1/8'] }"),
        ("infer.token", "infer = { host = '0.0.0.0' }"),
        ("infer.token", "infer = { token = 'in plain text' }"),
        ("infer.port", "infer = { port = 0 }"),
        ("infer.max_request_bytes", "infer = { max_request_bytes = 0 }"),
        ("serve.proxies[1]", "serve = { proxies = ['::1', 'proxy.example'] }"),
        ("serve.proxies[0]", "serve = { proxies = ['0.0.0.0/0'] }"),
        ("metrics.port_base", "metrics = { port_base = 70000 }"),
        ("metrics.grafana_url", "metrics = { grafana_url = 'localhost' }"),
        ("metrics.grafana_url", "metrics = { grafana_url = 'javascript:alert(1)' }"),
        ("jenkins", "[jenkins]"),
        ("projects.Beta", "[projects]\nBeta = ['github.com/a/b']"),
        ("projects.beta", "[projects]\nbeta = []"),
        ("projects.beta[1]", "[projects]\nbeta = ['git@forge:a/b.git', 'model']"),
        ("projects.beta[0]", f"[projects]\nbeta = ['https://me:{CANARY}@forge /a']"),
        ("metrics.prometheus_url", "metrics = { prometheus_url = 'http://localhost:9090' }"),
        ("kfp.token", f"kfp = {{ token = '{CANARY}' }}"),
        ("kfp.tokn", f"kfp = {{ tokn = '{CANARY}' }}"),
        ("kserve.namespace", "kserve = { namespace = 'Serving' }"),
        ("kserve.namespace", "launch = { namespace = 'team' }\nkserve = { namespace = 'team' }"),
        ("kserve.secret", "kserve = { secret = 'a/b' }"),
        ("kserve.mode", "kserve = { mode = 'ModelMesh' }"),
        ("kserve.image", "kserve = { image = 'registry.example/infer:latest' }"),
        ("kserve.resources", "kserve = { resources = { 'a b' = '1' } }"),
        ("kserve.resources.memory", "kserve = { resources = { memory = '4 GB' } }"),
        ("kserve.min_replicas", "kserve = { min_replicas = 0 }"),
        ("kserve.min_replicas", "kserve = { mode = 'Knative', min_replicas = -1 }"),
        ("kserve.max_replicas", "kserve = { min_replicas = 3, max_replicas = 2 }"),
    ],
)
def test_each_rule_names_its_key_and_no_secret(key, text):
    assert [each.split(": ")[0] for each in problems(text)] == [key]

"""`gangline emit kserve` of a published version: which one, signed by whom, served by what."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest
import yaml
from tests.launch.kubernetes.served_versions import IMAGE
from tests.registry.passed_run import copy_of, template
from typer.testing import CliRunner

from gangline.cli.main import app
from gangline.errors import ConfigError, IntegrityError, UsageError
from gangline.line.record.store import read_record
from gangline.line.results.kserve_manifest import emit_inference_service
from gangline.registry.promote import promote
from gangline.registry.versions import read_alias, read_version
from gangline.signing.keys import trusted_keys
from gangline.spec.config.infer_table import KserveTable
from gangline.spec.config.site import Site, StoreTable

SITE = Site(
    store=StoreTable(url="s3://models", endpoint="https://store.example", credentials="secret:env:STORE"),
    kserve=KserveTable(namespace="serving", image=IMAGE),
)


@pytest.fixture
def workspace(tmp_path, tmp_path_factory):
    """A workspace with `bytegpt 1`."""
    return copy_of(template(tmp_path_factory, "published")[0], tmp_path / "root")


def emit(workspace, target, **options):
    return emit_inference_service(target, store=workspace.store, site=SITE, environ=workspace.environ, **options)


def promoted(workspace, alias="champion"):
    promote(
        "bytegpt", 1, alias, store=workspace.store, because="tests", repo=workspace.repo, site=workspace.site,
        environ=workspace.environ, read_record=read_record,
    )  # fmt: skip


def as_program(workspace, paths, config=None):
    """The version as if a program had published `paths`."""
    version = read_version(workspace.store, "bytegpt", 1)
    text = json.dumps({"format": "gangline-program/1", "infer": {}} | (config or {})).encode()
    known = {file.path: file for file in version.files}
    key = "models/bytegpt/files/changed.json"
    workspace.store.put(key, text)
    changed = replace(known["config.json"], key=key, size_bytes=len(text), sha256=sha256(text).hexdigest())
    files = (changed, *(replace(known["card.md"], path=path) for path in paths))
    program = replace(version, files=files, checkpoint="runs/demo/" + "0" * 40 + "/r/outputs.json")
    workspace.store.put(version.key, program.to_json())
    return workspace


@pytest.mark.row("IN6")
@pytest.mark.parametrize("target", ["bytegpt", "bytegpt/1", "bytegpt@1"])
def test_the_version_is_named_by_its_number(workspace, target):
    config, thing = yaml.safe_load_all(emit(workspace, target))
    version = read_version(workspace.store, "bytegpt", 1)
    assert thing["metadata"]["name"] == "bytegpt"
    assert thing["metadata"]["labels"] == config["metadata"]["labels"]
    assert thing["metadata"]["labels"]["gangline/commit"] == version.commit[:12]
    assert thing["spec"]["predictor"]["initContainers"][0]["command"][:3] == ["gangline", "verify", "bytegpt/1"]


def test_an_alias_is_pinned_to_the_version_it_names_and_gives_the_service_its_name(workspace):
    promoted(workspace)
    config, thing = yaml.safe_load_all(emit(workspace, "bytegpt@champion"))
    assert thing["metadata"]["name"] == "bytegpt-champion"
    assert thing["metadata"]["labels"]["gangline/version"] == "1"
    assert thing["spec"]["predictor"]["initContainers"][0]["command"][2] == "bytegpt/1"
    (key_id,) = trusted_keys(workspace.site, workspace.environ)
    assert f"{key_id}.pub" in config["data"]


@pytest.mark.row("IN6")
def test_no_secret_is_written(workspace):
    text = emit_inference_service(
        "bytegpt", store=workspace.store, site=SITE, environ=workspace.environ | {"STORE": "canary-of-the-store"}
    )
    assert "canary" not in text
    assert "PRIVATE" not in text


def test_an_alias_that_somebody_wrote_into_the_store_is_refused(workspace):
    promoted(workspace)
    alias = read_alias(workspace.store, "bytegpt", "champion")
    workspace.store.put(alias.key, replace(alias, generation=alias.generation + 1).to_json())
    with pytest.raises(IntegrityError):
        emit(workspace, "bytegpt@champion")


def test_a_version_that_was_replaced_after_its_promotion_is_refused(workspace):
    promoted(workspace)
    version = read_version(workspace.store, "bytegpt", 1)
    workspace.store.put(version.key, replace(version, created="later").to_json())
    with pytest.raises(IntegrityError, match="not the file that was promoted"):
        emit(workspace, "bytegpt@champion")


def test_a_config_that_the_version_does_not_list_is_refused(workspace):
    version = read_version(workspace.store, "bytegpt", 1)
    key = next(file.key for file in version.files if file.path == "config.json")
    workspace.store.put(key, b'{"infer": {"handler": "evil:Handler"}}')
    with pytest.raises(IntegrityError, match=r"not the file that models/bytegpt/1\.json lists"):
        emit(workspace, "bytegpt")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("bytegpt/9", "there is no bytegpt 9 in .*; versions of bytegpt: 1"),
        ("none", "there is no none  in .*; versions of none: none"),
        ("bytegpt@champion", "nothing was promoted to bytegpt@champion"),
        ("../x", "wanted MODEL, MODEL@ALIAS or MODEL/VERSION, found"),
    ],
)
def test_what_is_not_there_is_said(workspace, target, said):
    with pytest.raises(UsageError, match=said):
        emit(workspace, target)


def test_a_folder_of_save_pretrained_is_served_by_the_runtime_of_kserve(workspace):
    paths = ["files/out/config.json", "files/out/model.safetensors", "files/out/tokenizer.json"]
    _, thing = yaml.safe_load_all(emit(as_program(workspace, paths), "bytegpt"))
    model = thing["spec"]["predictor"]["model"]
    assert model["runtime"] == "kserve-huggingfaceserver"
    assert "--model_dir=/model/version/files/out" in model["args"]
    assert "containers" not in thing["spec"]["predictor"]


def test_a_handler_is_served_by_our_server_whatever_the_files_are(workspace):
    paths = ["files/out/config.json", "files/out/model.safetensors"]
    config = {"infer": {"handler": "answer:Handler"}}
    _, thing = yaml.safe_load_all(emit(as_program(workspace, paths, config), "bytegpt"))
    assert thing["spec"]["predictor"]["containers"][0]["command"][2] == "gangline.infer"


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["model.bin"], "wanted infer.handler in its line.toml, or one folder of save_pretrained"),
        (["a/config.json", "a/m.safetensors", "b/config.json", "b/m.safetensors"], "found 2 of them"),
        (["files/config.json", "files/m.safetensors", "files/old.pt"], "files/old.pt would be unpickled"),
    ],
)
def test_a_program_that_nothing_serves_is_refused(workspace, paths, said):
    with pytest.raises(ConfigError, match=said):
        emit(as_program(workspace, paths), "bytegpt")


@pytest.mark.row("IN6")
def test_what_is_emitted_verifies_in_a_folder_without_a_clone_and_without_a_private_key(
    workspace, tmp_path, monkeypatch
):
    """The init container's command with its site and keys; its store is a folder, which a pod could not see."""
    config, thing = yaml.safe_load_all(emit(workspace, "bytegpt"))
    (verifier,) = thing["spec"]["predictor"]["initContainers"]
    (volume,) = [each for each in thing["spec"]["predictor"]["volumes"] if each["name"] == "site"]
    pod = tmp_path / "pod"
    for item in volume["configMap"]["items"]:
        file = pod / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(config["data"][item["key"]])
    stores = [line for line in config["data"]["site.toml"].splitlines() if not line.startswith(("url", "endp", "cred"))]
    (pod / "site.toml").write_text("\n".join(stores).replace("[store]", f'[store]\nurl = "{workspace.store.url}"'))
    before = sorted(path for path in pod.rglob("*"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(pod))
    monkeypatch.setenv("GANGLINE_SITE", str(pod / "site.toml"))
    monkeypatch.chdir(tmp_path)
    words = [each.replace("/model/", f"{tmp_path}/") for each in verifier["command"][2:]]
    for _ in range(2):  # the sandbox of a pod may start again, and finds what the first left
        assert CliRunner().invoke(app, ["verify", *words]).exit_code == 0
    assert (tmp_path / "version" / "model.sig").is_file()
    assert (tmp_path / "code" / "model.py").is_file()
    assert sorted(path for path in pod.rglob("*")) == before

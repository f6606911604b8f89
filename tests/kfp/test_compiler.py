"""The pipeline file: stable to the byte, nothing between commits but the image, no task without its bounds."""

import os
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gangline.cli.main import app
from gangline.errors import ConfigError
from gangline.kfp.compiler import compile_line, find_root
from gangline.spec.config.site import LimitsTable
from gangline.spec.record import STAGES

GOLDEN = Path(__file__).parents[1] / "golden" / "kfp" / "train_line.yaml"
IMAGE = "registry.example/gangline/line@sha256:" + "a1" * 32
NEXT_IMAGE = "registry.example/gangline/line@sha256:" + "b2" * 32
TASKS = STAGES[2:]


def compile_golden() -> bytes:
    return compile_line(find_root(), IMAGE, secrets=("gangline",), environ=os.environ)


@pytest.fixture(scope="module")
def compiled() -> bytes:
    return compile_golden()


@pytest.fixture(scope="module")
def documents(compiled):
    return list(yaml.safe_load_all(compiled))


def test_the_file_is_the_one_that_was_reviewed(compiled):
    assert compiled == GOLDEN.read_bytes(), "read the difference; if it is meant: python -m tests.kfp.test_compiler"


def test_another_commit_changes_the_images_alone(compiled):
    other = compile_line(find_root(), NEXT_IMAGE, secrets=("gangline",), environ={"PYTHONHASHSEED": "7"})
    before, after = compiled.decode().splitlines(), other.decode().splitlines()
    assert len(before) == len(after)
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) == len(TASKS)
    assert all((old.strip(), new.strip()) == (f"image: {IMAGE}", f"image: {NEXT_IMAGE}") for old, new in changed)


def test_every_stage_from_plan_on_is_one_task_and_the_report_comes_whatever_happens(documents):
    spec = documents[0]
    inner = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    assert set(inner) == set(TASKS) - {"report"}
    assert spec["root"]["dag"]["tasks"]["report"]["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    order = {name: task.get("dependentTasks", []) for name, task in inner.items()}
    assert order == {name: [TASKS[i - 1]] if i else [] for i, name in enumerate(TASKS[:-1])}


def test_no_task_is_cached_and_a_lost_one_is_tried_twice_again(documents):
    spec = documents[0]
    tasks = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"] | {
        "report": spec["root"]["dag"]["tasks"]["report"]
    }
    for task in tasks.values():
        assert task["cachingOptions"] == {}
        assert task["retryPolicy"]["maxRetryCount"] == 2
        assert task["retryPolicy"]["backoffDuration"] == "30s"
        assert task["retryPolicy"]["backoffMaxDuration"] == f"{LimitsTable().run_seconds:.0f}s"


def test_every_container_has_limits_and_installs_nothing(documents):
    for executor in documents[0]["deploymentSpec"]["executors"].values():
        container = executor["container"]
        assert container["image"] == IMAGE
        assert container["resources"]["resourceMemoryLimit"] == "2Gi"
        assert container["resources"]["resourceCpuLimit"] == "2"
        assert "pip install" not in " ".join(container["command"])


def test_every_task_runs_as_a_numbered_user_and_mounts_the_sites_secrets(documents):
    executors = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert len(executors) == len(TASKS)
    for executor in executors.values():
        assert executor["securityContext"] == {"runAsGroup": "65532", "runAsNonRoot": True, "runAsUser": "65532"}
        (mounted,) = executor["secretAsVolume"]
        assert mounted["mountPath"] == "/var/run/gangline/secrets/gangline"


def test_the_pipeline_ends_in_time_and_is_forgotten_after_a_week(documents):
    config = documents[1]["platforms"]["kubernetes"]["pipelineConfig"]
    ends = ("resourceTtlOnCompletion", "resourceTtlOnSuccess", "resourceTtlOnFailure")
    assert [config[end] for end in ends] == [7 * 24 * 3600] * 3, "a default of the server replaces each that is missing"
    assert config["activeDeadlineSeconds"] == 172_800


@pytest.mark.parametrize("name", TASKS)
def test_each_component_names_a_stage_that_the_command_line_knows(documents, name):
    (source,) = (
        each["container"]["command"][-1]
        for each in documents[0]["deploymentSpec"]["executors"].values()
        if each["container"]["args"][-1] == name
    )
    assert f'run_stage("{name}", run=run, config=config' in source
    assert 3 <= len(source.split('"""')[-1].strip().splitlines()) <= 10
    asked = CliRunner().invoke(app, ["stage", name, "--run", "cheap-9f31c2a0-k7q2mx", "--repo", "/nowhere"])
    assert "wanted a folder, found nothing at /nowhere" in str(asked.exception)


def test_an_image_without_digest_is_refused():
    with pytest.raises(ConfigError, match="sha256"):
        compile_line(find_root(), "registry.example/gangline/line:latest")


def test_definitions_that_do_not_compile_say_why(tmp_path):
    for folder in ("pipelines", "components"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pipelines" / "train_line.py").write_text("import no_such_module\n")
    with pytest.raises(ConfigError, match="no_such_module"):
        compile_line(find_root(tmp_path), IMAGE)


def test_a_repository_with_definitions_of_its_own_wins(tmp_path):
    assert find_root(tmp_path) == find_root()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "train_line.py").touch()
    (tmp_path / "components").mkdir()
    assert find_root(tmp_path) == tmp_path


if __name__ == "__main__":
    GOLDEN.write_bytes(compile_golden())

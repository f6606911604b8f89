"""What is pinned and what is not, item by item; and how the gate puts it."""

from dataclasses import replace

import pytest
from tests.line.records import record

from gangline.line.results.reproducibility import reproducibility_items
from gangline.line.stages.gate import judge
from gangline.spec.config.line import GateTable
from gangline.spec.measurements import StartedFrom, Training
from gangline.spec.mesh import Mesh
from gangline.spec.program_files import LoadedModule, RuntimeReport, UndeclaredRead
from gangline.spec.record import PlanInfo, StageInfo

REPORTED = RuntimeReport(python="3.12.1", packages={"numpy": "2.4.6"}, modules={"code": 2}, ranks=(0,), is_whole=True)
BUILT = {"NumPy": "2.4.6", "torch": "2.15.0"}


def locked(ran=REPORTED, **values):
    made = record()
    build = StageInfo(state="done", outputs={"lock": "uv.lock"})
    return replace(made, ran=ran, stages={"build": build}, inputs=replace(made.inputs, data="d" * 64, values=values))


def found(of, built=BUILT):
    return {each.name: (each.pinned, each.by) for each in reproducibility_items(of, built)}


def gate(of, built=BUILT, **table):
    return next(judge(GateTable(**table), of, base_data=None, built=built))


def test_seeds_that_a_program_need_not_read_are_said_to_be_given_alone():
    build, train = locked().stages["build"], StageInfo(state="done", outputs={"joined": False})
    for words, says in (
        (["python", "a.py"], "whether the program reads it is not seen"),
        (["a.py", "--seed={seed}"], ""),
    ):
        made = replace(locked(**{"project.command": words}), stages={"build": build, "train": train})
        pinned, by = found(made)["seeds"]
        assert pinned == "yes"
        assert says in by
        assert ("GANGLINE_SEED" in by) == bool(says)


def test_a_run_of_which_everything_is_pinned_is_reproducible():
    made = gate(locked())
    assert made.verdict == "yes"
    assert {each["pinned"] for each in made.evidence["items"]} == {"yes"}
    names = [each["name"] for each in made.evidence["items"]]
    assert names == ["commit", "line", "code", "environment", "modules", "data", "seeds"]


def test_without_a_lock_the_environment_is_not_pinned_and_its_versions_are_named():
    made = gate(replace(locked(), stages={}), built=None)
    assert made.verdict == "unknown"
    assert "environment: not locked; Python 3.12.1, numpy 2.4.6; env.lock locks it" in made.reason


def test_a_lock_that_no_one_installed_pins_nothing():
    assert found(locked(), built=None)["environment"][0] == "unknown"


def test_a_package_that_the_lock_did_not_install_is_named_and_not_called_pinned():
    """As after `pip install` in a run: the folder is read-only, which does not stop an administrator."""
    made = locked(replace(REPORTED, packages={"numpy": "2.4.6", "sneaked-in": "1.0"}))
    by = "packages were imported that uv.lock did not install: sneaked-in 1.0"
    assert found(made)["environment"] == ("unknown", by)
    assert found(made, {**BUILT, "sneaked_in": "1.0"})["environment"][0] == "yes"


def test_another_version_than_the_built_one_contradicts():
    other = locked(replace(REPORTED, packages={"numpy": "2.4.6"}))
    assert found(other, {"numpy": "1.26.4"})["environment"] == (
        "no", "other versions than those of uv.lock were imported: numpy 2.4.6 for 1.26.4",
    )  # fmt: skip
    assert gate(other, {"numpy": "1.26.4"}).verdict == "no"
    assert gate(other, {"numpy": "1.26.4"}, reproducible=False).verdict == "unknown"


def test_a_checkpoint_that_the_run_started_from_is_an_item_of_its_own():
    made = locked()
    assert "start" not in found(made)
    start = StartedFrom(checkpoint="runs/x/c/r/gang/checkpoints/step-00000120", step=120)
    made = replace(made, training=replace(made.training or Training(), started_from=start))
    assert found(made)["start"] == ("yes", "step 120 of runs/x/c/r/gang/checkpoints/step-00000120")


def test_an_image_pins_its_environment_by_digest():
    made = replace(locked(), inputs=replace(locked().inputs, image="x/y@sha256:" + "a" * 64))
    assert found(made, None)["image"][0] == "yes"
    assert gate(made, None).verdict == "yes"


@pytest.mark.parametrize(
    ("reported", "item"),
    [
        (None, "modules"),
        (replace(REPORTED, foreign=("Python 3.13.0 of /opt/x",)), "environment"),
        (replace(REPORTED, elsewhere=(LoadedModule(name="m", file="/x/m.py"),)), "modules"),
        (replace(REPORTED, reads=(UndeclaredRead(path="/x/y", size_bytes=1),), num_reads=1), "data"),
        (replace(REPORTED, packages={"h5py": "3"}), "data"),
        (replace(REPORTED, packages={"lightgbm": "4"}), "data"),
        (replace(REPORTED, packages={"sentencepiece": "0.2"}), "data"),
        (replace(REPORTED, packages={"xgboost_cpu": "3.1"}), "data"),
        (replace(REPORTED, packages={"opencv-contrib-python-headless": "4"}), "data"),
        (replace(REPORTED, packages={"cudf-cu12": "25"}), "data"),
        (replace(REPORTED, programs=("cat",)), "data"),
        (replace(REPORTED, unseen=("the report of this rank was full",)), "data"),
        (replace(REPORTED, hosts=("hub.example",)), "network"),
    ],
)
def test_what_is_not_known_is_not_a_yes_and_refuses_only_where_the_line_is_strict(reported, item):
    made = locked(reported)
    assert found(made)[item][0] == "unknown"
    assert gate(made).verdict == "unknown"
    assert gate(made, reproducible="strict").verdict == "no"
    assert gate(made, reproducible=False).verdict == "unknown"


def test_declared_data_is_pinned_no_matter_who_reads_it():
    made = locked(replace(REPORTED, packages={"h5py": "3"}), **{"data.shards": ["a"]})
    assert found(made)["data"][0] == "yes"


def test_what_a_program_read_is_not_seen_though_data_is_declared():
    made = locked(replace(REPORTED, programs=("cat", "sh", "unzip", "zstd")), **{"data.shards": ["a"]})
    assert found(made)["data"] == ("unknown", f"digest {'d' * 12}; reads of cat, sh, unzip and 1 more are not visible")


def test_files_that_were_read_and_programs_that_were_started_are_both_said():
    reads = (UndeclaredRead(path="/x/y", size_bytes=1),)
    by = found(locked(replace(REPORTED, programs=("cat",), reads=reads, num_reads=1)))["data"][1]
    assert by.startswith("none declared; read 1 file that the line does not declare: /x/y; ")
    assert by.endswith("; reads of cat are not visible")


def test_a_dirty_tree_refuses_as_before():
    made = replace(locked(), commit=replace(locked().commit, patch="blobs/sha256/x"))
    assert gate(made).verdict == "no"
    assert gate(made).reason.startswith("commit: the tree has uncommitted changes")
    assert gate(made, reproducible=False).verdict == "unknown"


@pytest.mark.parametrize(
    ("gpus", "pinned", "by"),
    [
        (("NVIDIA H100 80GB HBM3",), "yes", "NVIDIA H100 80GB HBM3"),
        ((), "unknown", "no rank reported which GPUs it computed on"),
        (("NVIDIA A100-SXM4-80GB",), "unknown", "computed on NVIDIA A100-SXM4-80GB; planned for NVIDIA-H100-80GB-HBM3"),
        (("A", "B"), "unknown", "computed on A, B; planned for NVIDIA-H100-80GB-HBM3"),
    ],
)
def test_the_kind_of_gpu_is_pinned_where_ranks_found_the_planned_one_alone(gpus, pinned, by):
    made = locked(replace(REPORTED, gpus=gpus))
    plan = PlanInfo(
        digest="d", key="k", name="ddp-2", strategy="ddp", mesh=Mesh(), world_size=2, steps=4, global_batch=8,
        micro_batch=1, precision="bf16", device="cuda", device_name="NVIDIA-H100-80GB-HBM3", reason="",
    )  # fmt: skip
    assert found(replace(made, plan=plan))["gpus"] == (pinned, by)

"""`line.toml`: what is read, what is refused, and that everything wrong is said at once."""

from functools import reduce
from operator import getitem
from pathlib import Path

import pytest

from gangline.errors import ConfigError
from gangline.spec.codec import digest, to_plain
from gangline.spec.config.load import (
    LATER_DEFAULTS,
    UNDIGESTED,
    effective,
    line_digest,
    load_line,
    load_line_text,
    table_digests,
)
from gangline.spec.config.problems import FileError

LEAST = """
[project]
name = "demo"
task = "model:Demo"
[train]
steps = 100
global_batch = 16
"""
IMAGE = "python@sha256:" + "a" * 64


def problems(text: str, **options) -> list[str]:
    with pytest.raises(FileError) as caught:
        load_line_text(text, file="line.toml", **options)
    assert caught.value.exit_code == 10
    return [str(problem) for problem in caught.value.problems]


def override_problems(*overrides: str) -> list[str]:
    return problems(LEAST, overrides=overrides)


def test_smallest_line_has_the_defaults_of_the_reference():
    line = load_line_text(LEAST, file="line.toml")
    values = effective(line)
    assert (values["train.seed"], values["train.strategy"], values["data.holdout"]) == (1, "auto", 0.1)
    assert values["publish.branches"] == ["main"]


def test_example_of_the_repository_is_read_from_its_folder():
    line = load_line(Path(__file__).parents[3] / "examples" / "bytegpt")
    assert line.model == {"layers": 4, "width": 128, "context": 128}
    assert line.gate.quality[0].metric == "eval_loss"


def test_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(ConfigError, match=r"gangline init .* gangline new"):
        load_line(tmp_path)


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("train.seed=2", 2),
        ("train.strategy=ddp", "ddp"),
        ('train.strategy="ddp"', "ddp"),
        ("train.ranks=[1, 2]", [1, 2]),
        ("model.width=64", 64),
        ("train.deterministic=false", False),
        ("train.clip_norm=1", 1.0),
        ("optimizer.elementwise.lr = 1e-3", 1e-3),
    ],
)
def test_override_changes_the_effective_line_and_its_digest(override, value):
    plain = load_line_text(LEAST, file="line.toml")
    line = load_line_text(LEAST, file="line.toml", overrides=[override])
    assert effective(line)[override.partition("=")[0].strip()] == value
    assert line_digest(line) != line_digest(plain)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.seed", "train.seed=2 works"),
        ("seed=2", "train.seed=2 works"),
        ("train.seed=2\n[gate]", "--set once a key"),
        ("train.seed=two words", "quote strings"),
        ("train.steps.x=1", "a table at steps"),
    ],
)
def test_override_that_is_none_says_what_works(override, message):
    with pytest.raises(FileError, match=message.replace("[", r"\[")):
        load_line_text(LEAST, file="line.toml", overrides=[override])


def test_default_written_out_changes_no_digest():
    spoken = load_line_text(LEAST + '[train.mesh]\ntp = 1\n[publish]\nbranches = ["main"]\n', file="line.toml")
    silent = load_line_text(LEAST, file="line.toml")
    assert line_digest(spoken) == line_digest(silent)
    assert table_digests(spoken) == table_digests(silent)


def test_table_digest_moves_only_with_its_own_table():
    first = table_digests(load_line_text(LEAST, file="line.toml"))
    second = table_digests(load_line_text(LEAST, file="line.toml", overrides=["model.width=64"]))
    assert {name for name in first if first[name] != second[name]} == {"model"}


def test_a_misspelled_key_is_named_before_the_one_that_lacks_it():
    found = problems('[project]\nnmae = "demo"\n[train]\nsteps = 1\nglobal_batch = 1\n')
    assert found[0] == "project.nmae: wanted a known key, found an unknown one; did you mean project.name?"


def test_all_problems_come_together_with_key_and_way_out():
    text = """
[project]
name = "Demo App"
[train]
steps = true
global_batch = 1.5
stepz = 3
[evaluate]
metrics = "abc"
[gaet]
x = 1
[checkpoint]
"""
    found = problems(text)
    assert found == [
        (
            "project.name: wanted a name of [a-z][a-z0-9-]{0,19}, found 'Demo App'; "
            "use lower-case letters, digits and dashes, at most 20"
        ),
        (
            "project.task: wanted exactly one of project.task and project.command, found neither; "
            'write task = "module:Class", or command = ["python", "train.py"]'
        ),
        "train.stepz: wanted a known key, found an unknown one; did you mean train.steps?",
        "train.steps: wanted an integer, found true",
        "train.global_batch: wanted an integer, found 1.5",
        "evaluate.metrics: wanted a list of strings, found 'abc'",
        (
            "checkpoint: wanted a known key, found an unknown one; there are project, train, env, data, model, "
            "optimizer, plan, evaluate, gate, prove, publish, infer, trigger, search, federated"
        ),
        "gaet: wanted a known key, found an unknown one; did you mean gate?",
    ]


def test_required_keys_are_named():
    assert [each.split(":")[0] for each in problems("")] == ["project.name", "train.steps", "train.global_batch"]


def test_rules_judge_the_rest_of_a_table_with_a_wrong_type():
    found = override_problems("train.seed=x", "train.checkpoint.keep=1")
    assert [each.split(":")[0] for each in found] == ["train.seed", "train.checkpoint.keep"]


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("project.name", ["project.name=Big"]),
        ("project.task", ["project.command=['python']"]),
        ("project.task", ["project.task=model"]),
        ("project.include", ["project.include=['/etc/x']"]),
        ("project.exclude", ["project.exclude=['/etc/*']"]),
        ("env.lock", ["env.lock='../lock.txt'"]),
        ("env.base", ["env.base='python:3.11'"]),
        ("data.shards", ["data.text=['repo:a']", "data.shards=['b']"]),
        ("data.text[0]", ["data.text=['repo:../a']"]),
        ("data.text[0]", ["data.text=['ftp:a']"]),
        ("data.text[0]", ["data.text=['package:/etc/passwd']"]),
        ("data.text[0]", ["data.text=['a/../b']"]),
        ("data.text[0]", [f"data.text=['repo:{'**/' * 400}*']"]),
        ("data.digest", ["data.digest='abc'"]),
        ("data.holdout", ["data.holdout=0"]),
        ("data.holdout", ["data.holdout=0.51"]),
        ("train.steps", ["train.steps=0"]),
        ("train.global_batch", ["train.global_batch=0"]),
        ("train.global_batch", ["train.ranks=3"]),
        ("train.global_batch", ["train.mesh.micro_batch=5"]),
        ("train.seed", ["train.seed=-1"]),
        ("train.strategy", ["train.strategy=magic"]),
        ("train.ranks", ["train.ranks=[4, 2]"]),
        ("train.ranks", ["train.ranks=0"]),
        ("train.ranks", ["train.strategy=none", "train.ranks=2"]),
        ("train.clip_norm", ["train.clip_norm=0"]),
        ("train.env.WORLD_SIZE", ["train.env.WORLD_SIZE='3'"]),
        ("train.env.GANGLINE_RUN", ["train.env.GANGLINE_RUN='x'"]),
        ("train.env.9", ["train.env.9='x'"]),
        ("train.mesh.tp", ["train.mesh.tp=2"]),
        ("train.mesh.dp_shard", ["train.strategy=explicit", "train.mesh.dp_shard=0"]),
        ("train.mesh.ep", ["train.strategy=explicit", "train.mesh.ep=3"]),
        ("train.ranks", ["train.strategy=explicit", "train.mesh.dp_shard=4", "train.ranks=2"]),
        ("train.mesh.pp_schedule", ["train.mesh.pp_schedule=zigzag"]),
        ("train.mesh.bucket_bytes", ["train.mesh.bucket_bytes=0"]),
        ("train.mesh.bucket_bytes", ["train.strategy=fsdp", "train.mesh.bucket_bytes=1000"]),
        ("train.mesh.bucket_bytes", ["train.strategy=explicit", "train.mesh.tp=2", "train.mesh.bucket_bytes=1000"]),
        ("train.mesh.pp_schedule", ["train.strategy=fsdp", "train.mesh.pp_schedule=zbv"]),
        ("train.mesh.pp_schedule", ["train.strategy=explicit", "train.mesh.tp=2", "train.mesh.pp_schedule=zbv"]),
        ("train.mesh.context", ["train.strategy=ddp", "train.mesh.context=ulysses"]),
        ("train.ranks", ["train.strategy=none", "train.ranks=[2, 4]"]),
        ("train.ranks", ["train.strategy=explicit", "train.mesh.dp_shard=4", "train.ranks=[1, 2]"]),
        ("train.recovery.stragglers", ["train.strategy=fsdp", "train.recovery.stragglers=rebalance"]),
        ("train.recovery.stragglers", ["train.strategy='3d'", "train.recovery.stragglers=rebalance"]),
        (
            "train.recovery.stragglers",
            [
                "train.strategy=explicit",
                "train.mesh.pp=2",
                "train.mesh.dp_replicate=2",
                "train.recovery.stragglers=rebalance",
            ],
        ),
        ("train.recovery.stragglers", ["train.recovery.stragglers=evict"]),
        ("train.recovery.stragglers", ["train.ranks=2", "train.recovery.stragglers=evict"]),
        ("train.memory.activation_checkpointing", ["train.memory.activation_checkpointing=every_0"]),
        ("train.compression.kind", ["train.strategy=fsdp", "train.compression.kind=powersgd"]),
        ("train.compression.ratio", ["train.compression.ratio=0"]),
        ("train.compression.outer_steps", ["train.strategy=diloco", "train.compression.outer_lr=1"]),
        ("train.compression.outer_lr", ["train.strategy=diloco", "train.compression.outer_steps=4"]),
        ("train.checkpoint.every", ["train.checkpoint.every=0"]),
        ("train.checkpoint.keep", ["train.checkpoint.keep=1"]),
        ("train.checkpoint.max_unsaved_seconds", ["train.checkpoint.max_unsaved_seconds=0"]),
        ("train.schedule.warmup_steps", ["train.schedule.warmup_steps=101"]),
        ("train.schedule.final_ratio", ["train.schedule.final_ratio=1.1"]),
        ("train.schedule.kind", ["train.schedule.kind=zigzag"]),
        ("train.schedule.kind", ["train.schedule.kind='a file:rate'"]),
        ("train.schedule.warmup_steps", ["train.schedule.kind='rates:rate'", "train.schedule.warmup_steps=10"]),
        ("train.schedule.final_ratio", ["train.schedule.kind='rates:rate'", "train.schedule.final_ratio=0.2"]),
        ("train.recovery.mode", ["train.strategy=fsdp", "train.recovery.mode=live"]),
        ("train.recovery.max_events", ["train.recovery.max_events=-1"]),
        ("plan.budget_money", ["plan.budget_money=-1"]),
        ("evaluate.seeds", ["evaluate.seeds=0"]),
        ("infer.handler", ["infer.handler='serve'"]),
        ("infer.batch", ["infer.batch=0"]),
        ("infer.wait_ms", ["infer.wait_ms=-1.0"]),
        ("infer.queue", ["infer.queue=0"]),
        ("evaluate.every_steps", ["evaluate.every_steps=0"]),
        (
            "gate.quality[0].metric",
            ["gate.quality=[{metric='loss', better='lower'}]", "evaluate.metrics=['accuracy']"],
        ),
        (
            "gate.quality",
            ["gate.quality=[{metric='a', better='lower'}, {metric='a', better='higher'}]"],
        ),
        ("gate.quality[0].floor_percent", ["gate.quality=[{metric='a', better='lower', floor_percent=-1}]"]),
        ("gate.parity", ["gate.parity=-1e-9"]),
        ("prove.plan", ["prove.plan=magic"]),
        ("prove.replay_steps", ["prove.replay_steps=101"]),
        ("prove.replay_steps", ["prove.replay_steps=-1"]),
        ("train.start.checkpoint", ["train.start.checkpoint=runs/p/c/r"]),
        ("train.start.fused", ["train.start.fused=[{match='a', parts=['b', 'c'], split='gate_up'}]"]),
        ("publish.model", ["publish.model='A B'"]),
        ("project.outputs", ["project.outputs=['git~1/**']"]),
        ("trigger.schedule", ["trigger.schedule='0 3 * *'"]),
        ("trigger.schedule", ["trigger.schedule='60 3 * * *'"]),
        ("trigger.supersede", ["trigger.supersede=maybe"]),
    ],
)
def test_each_rule_names_its_key(key, overrides):
    assert [each.split(": ")[0] for each in override_problems(*overrides)] == [key]


@pytest.mark.row("P2")
def test_a_program_publishes_nothing_of_a_git_folder():
    text = LEAST.replace('task = "model:Demo"', 'command = ["python"]') + "[publish]\nfiles = ['out/.GIT/x']\n"
    assert problems(text) == [
        "publish.files: wanted files outside of git folders, found 'out/.GIT/x'; git's own files are never kept"
    ]


@pytest.mark.parametrize(
    ("overrides", "works"),
    [
        (["train.strategy=local_sgd"], "16 lets replicas meet every 16 steps"),
        (["train.strategy=diloco", "train.compression.outer_steps=4"], "0.7 is usual"),
        (["train.strategy=explicit", "train.ranks=2"], "train.mesh.dp_shard = 2 shards over them all"),
    ],
)
def test_a_value_that_is_missing_is_proposed(overrides, works):
    (problem,) = override_problems(*overrides)
    assert works in problem


def test_a_command_is_trained_for_as_many_seeds_as_gangs_have_numbers():
    command = LEAST.replace('task = "model:Demo"', 'command = ["python", "train.py"]')
    load_line_text(command + "[evaluate]\nseeds = 99\n", file="line.toml")
    (problem,) = problems(command + "[evaluate]\nseeds = 100\n")
    assert problem.startswith("evaluate.seeds: wanted at most 99 for a command, found 100")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("tolerance_percent = 2\nlimit = 3\n", "wanted one of limit and tolerance_percent, found both; keep one"),
        ("tolerance_percent = -1\n", "wanted at least 0, found -1"),
    ],
)
def test_a_tolerance_is_a_share_and_replaces_a_limit(keys, says):
    (problem,) = problems(LEAST + '[[gate.quality]]\nmetric = "eval_loss"\nbetter = "lower"\n' + keys)
    assert problem.startswith(f"gate.quality[0].tolerance_percent: {says}")


def test_a_command_is_not_evaluated_behind_its_back():
    """Its loop is its own; a number that nobody obeys is refused."""
    text = LEAST.replace('task = "model:Demo"', 'command = ["python", "train.py"]') + "[evaluate]\nevery_steps = 3\n"
    (problem,) = problems(text)
    assert problem.startswith("evaluate.every_steps: wanted nothing for a command, found 3; its loop is its own")


def test_one_process_is_what_a_command_may_be_and_nothing_else():
    alone = LEAST.replace('task = "model:Demo"', 'command = ["python", "train.py"]\ndistributed = false')
    assert not load_line_text(alone, file="line.toml").project.distributed
    (problem,) = problems(alone.replace("[train]", "[train]\nranks = 2"))
    assert problem == "train.ranks: wanted 1 with project.distributed = false, found 2; leave one of the two out"
    (problem,) = problems(LEAST.replace('task = "model:Demo"', 'task = "model:Demo"\ndistributed = false'))
    assert problem.startswith("project.distributed: wanted true for a task, found false; ranks = 1 in [train]")


@pytest.mark.parametrize(
    "overrides",
    [
        ["train.strategy=fsdp", "train.compression.kind=bf16"],
        ["train.strategy=ddp", "train.compression.kind=powersgd"],
        ["train.strategy=explicit", "train.mesh.dp_shard=4", "train.mesh.dp_replicate=2"],
        ["train.strategy=diloco", "train.compression.outer_steps=8", "train.compression.outer_lr=0.7"],
        ["train.env.GANGLINE_WATCHDOG_FIRST_SECONDS='900'", "train.env.GANGLINE_START_METHOD='spawn'"],
        ["train.ranks=[1, 4]", "train.schedule.warmup_steps=100"],
        ["train.schedule.kind='package.rates:rate'"],
        ["train.strategy=none", "train.ranks=[1, 4]"],
        ["train.strategy=pp", "train.mesh.pp_schedule=zbv"],
        ["train.strategy=cp", "train.mesh.context=ulysses"],
        ["train.strategy=explicit", "train.mesh.dp_replicate=2", "train.mesh.bucket_bytes=1000"],
        ["train.strategy=zero1", "train.recovery.stragglers=rebalance"],
        ["trigger.schedule='*/15 1-5,22 * * 1-5'"],
        ["data.text=['repo:src/**/*.py', 'package:gangline/**/*.py', 'corpora/a.txt']"],
        [f"env.base={IMAGE}"],
        ["prove.plan=off"],
    ],
)
def test_what_the_reference_allows_is_read(overrides):
    assert load_line_text(LEAST, file="line.toml", overrides=overrides).project.name == "demo"


def test_uneven_batch_names_the_two_nearest_that_are_even():
    assert "14 or 16 works" in override_problems("train.global_batch=15", "train.ranks=2")[0]
    assert "; 32 works" in override_problems("train.ranks=32")[0]


LOCK = f"# made by a tool\nnumpy==2.0 \\\n    --hash=sha256:{'ab' * 32}\n    # via torch\n\ntorch==2.15\n"


def test_lock_names_its_first_line_without_a_hash():
    files = {"lock.txt": LOCK.encode()}
    found = problems(LEAST, overrides=["env.lock=lock.txt"], reader=files.get)
    assert found[0].startswith("env.lock: wanted NAME==VERSION with a --hash=sha256: for each of its files, found")
    assert "'torch==2.15' without one at lock.txt:6" in found[0]


def test_lock_that_is_not_in_the_commit_is_refused():
    assert "commit it" in problems(LEAST, overrides=["env.lock=lock.txt"], reader={}.get)[0]


def test_lock_with_hashes_is_fine():
    files = {"lock.txt": LOCK.replace("2.15", f"2.15 --hash=sha256:{'cd' * 32}").encode()}
    line = load_line_text(LEAST, file="line.toml", overrides=["env.lock=lock.txt"], reader=files.get)
    assert line.env.lock == "lock.txt"


def test_path_that_is_a_folder_or_bytes_is_refused(tmp_path):
    (tmp_path / "line.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_line(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "line.toml").mkdir()
    with pytest.raises(ConfigError, match="readable file"):
        load_line(tmp_path / "other")


def test_a_hundred_problems_are_kept_but_not_all_printed():
    with pytest.raises(FileError) as caught:
        load_line_text(LEAST + "".join(f"[a{i}]\n" for i in range(100)), file="line.toml")
    assert len(caught.value.problems) == 100
    assert str(caught.value).endswith("and 50 problems more")


def test_keys_that_came_later_change_no_digest_where_they_are_not_set():
    line, command = load_line_text(LEAST, file="line.toml"), LEAST.replace('task = "model:Demo"', 'command = ["x"]')
    plain = to_plain(line)
    for key in (*LATER_DEFAULTS, *UNDIGESTED):
        *tables, name = key.split(".")
        value = reduce(getitem, tables, plain).pop(name)
        assert key in UNDIGESTED or value == LATER_DEFAULTS[key]
    assert line_digest(line) == digest(plain)
    assert table_digests(line)["project"] == digest(plain["project"])
    digests = {
        line_digest(load_line_text(command, file="line.toml", overrides=[each]))
        for each in ("train.seed=1", 'project.outputs=["out/**"]', "project.metrics=metrics.json")
    }
    assert len(digests) == 3


def test_a_search_and_trackers_are_no_input_of_a_run():
    searched = LEAST + '\n[search]\ntrials = 9\n[search.space]\n"train.global_batch" = { choices = [2, 4] }\n'
    line = load_line_text(searched, file="line.toml", overrides=["project.track=[]"])
    plain = load_line_text(LEAST, file="line.toml")
    assert line_digest(line) == line_digest(plain)
    assert table_digests(line) == table_digests(plain)
    assert effective(line) == effective(plain)
    assert not any(key.startswith("search") or key == "project.track" for key in effective(line))


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("project.metrics=metrics.yaml", "a file that ends in .json, .jsonl, .csv"),
        ('project.metrics="../metrics.json"', "one file inside the folder"),
        ('project.outputs=["/tmp/**"]', "a path inside the repository"),
    ],
)
def test_what_a_program_writes_lies_in_its_folder(override, wanted):
    command = LEAST.replace('task = "model:Demo"', 'command = ["x"]')
    assert any(wanted in each for each in problems(command, overrides=[override]))


def test_a_task_returns_its_metrics():
    assert any("nothing for a task" in each for each in override_problems("project.metrics=metrics.json"))

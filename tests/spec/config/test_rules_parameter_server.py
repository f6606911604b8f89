"""Rules of a line with a parameter server: all problems come back together."""

import pytest

from gangline.errors import ConfigError
from gangline.spec.config.load import load_line_text

LINE = """\
[project]
name = "apart"
task = "model:Tiny"
[train]
strategy = "parameter_server"
steps = 16
global_batch = 8
{train}
[train.compression]
outer_steps = 4
outer_lr = 0.7
{compression}
[train.parameter_server]
workers = 2
{table}
{rest}
"""


def problems_of(text):
    with pytest.raises(ConfigError) as caught:
        load_line_text(text, file="line.toml")
    return str(caught.value)


def line(*, train="", compression="", table="", rest=""):
    return LINE.format(train=train, compression=compression, table=table, rest=rest)


def test_a_line_with_workers_is_read_with_its_defaults():
    table = load_line_text(line(), file="line.toml").train.parameter_server
    assert (table.workers, table.servers, table.merge_size, table.oldest) == (2, 1, 1, 4)


def test_problems_of_the_table_come_back_together():
    said = problems_of(
        line(
            table="servers = 0\nquorum = 3\ngrace_seconds = -1\nmax_age = 0\nmax_ahead = 0\nlease_seconds = 3\n"
            "shard_bytes = 1000"
        )
    )
    for key in ("servers", "quorum", "grace_seconds", "max_age", "max_ahead", "lease_seconds", "shard_bytes"):
        assert f"train.parameter_server.{key}" in said


@pytest.mark.parametrize(
    ("given", "key", "said"),
    [
        ({"compression": 'kind = "powersgd"'}, "train.compression.kind", "none, bf16, int8 or topk"),
        ({"train": "ranks = [2, 4]"}, "train.ranks", "the ranks of one worker"),
        ({"train": 'recovery.mode = "live"'}, "train.recovery.mode", '"restart"'),
        ({"train": 'recovery.non_finite = "rollback"'}, "train.recovery.non_finite", "stop or skip"),
        ({"rest": "[evaluate]\nseeds = 3"}, "evaluate.seeds", "wanted 1"),
        ({"rest": "[evaluate]\nevery_steps = 3"}, "evaluate.every_steps", "nothing"),
        ({"rest": "[prove]\nreplay_steps = 3"}, "prove.replay_steps", "not repeatable"),
        ({"rest": '[prove]\nplan = "parameter_server"'}, "prove.plan", "a plan of one gang"),
        ({"rest": "[federated]\nlocal_steps = 2\nquorum = 1"}, "federated", "no federation"),
    ],
)
def test_options_that_need_ranks_that_train_together_are_refused(given, key, said):
    found = problems_of(line(**given))
    assert key in found
    assert said in found


def test_a_batch_that_workers_cannot_share_is_refused_with_the_nearest_numbers():
    text = line().replace("global_batch = 8", "global_batch = 7")
    assert "6 or 8 works" in problems_of(text)


def test_one_worker_and_a_command_and_missing_keys_are_refused():
    assert "train.parameter_server.workers" in problems_of(line().replace("workers = 2", "workers = 1"))
    assert "project.command" in problems_of(line().replace('task = "model:Tiny"', 'command = ["python", "a.py"]'))
    without = line().split("[train.compression]")[0]
    said = problems_of(without)
    for key in ("train.compression.outer_steps", "train.compression.outer_lr", "train.parameter_server.workers"):
        assert key in said


def test_a_table_without_its_strategy_is_refused():
    text = line().replace('strategy = "parameter_server"', 'strategy = "diloco"')
    assert 'train.parameter_server: wanted strategy = "parameter_server"' in problems_of(text)

"""Rules of data sets in a line: what is refused, by key, and what is taken."""

import pytest

from gangline.spec.config.load import line_digest, load_line_text
from gangline.spec.config.problems import FileError

TASK = 'project = { name = "demo", task = "m:C" }\ntrain = { steps = 1, global_batch = 8 }\n'
COMMAND = (
    'project = { name = "demo", command = ["a"], outputs = ["out/*.arrow"] }\ntrain = { steps = 1, global_batch = 8 }\n'
)


def load(text, head=TASK):
    return load_line_text(head + text, file="line.toml")


@pytest.mark.parametrize(
    "text",
    [
        'data = { shards = ["dataset:wiki"] }',
        'data = { shards = ["dataset:wiki@3f2a91c4", "dataset:code@stable"], order = "file", window = 1, parts = 4 }',
        'data = { shards = ["dataset:wiki"], workers = 0, prefetch = 1 }',
        'data = { text = ["repo:a"], workers = 4, order = "full" }',
        'data = { mix = [{ shards = "dataset:wiki", weight = 1 }, { shards = "dataset:code@stable", weight = 0.3 }] }',
    ],
)
def test_lines_that_name_data_sets_are_taken(text):
    assert load(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('shards = ["dataset:Wiki"]', r"data\.shards\[0\]: wanted dataset:NAME, .* found 'dataset:Wiki'"),
        ('shards = ["dataset:wiki@"]', r"data\.shards\[0\]: wanted dataset:NAME"),
        ('shards = ["dataset:../wiki"]', r"data\.shards\[0\]: wanted dataset:NAME"),
        (
            'shards = ["dataset:wiki", "data/a.json"]',
            r"data\.shards: wanted data sets, or keys of manifests, found both",
        ),
        (
            'shards = ["dataset:wiki", "dataset:wiki@3f2a91c4"]',
            r"data\.shards: wanted each data set once, found 2 times",
        ),
        (
            'mix = [{ shards = "dataset:a", weight = 1 }, { shards = "dataset:a@b", weight = 1 }]',
            r"data\.mix: wanted each",
        ),
        ('mix = [{ shards = "dataset:a", weight = 0 }]', r"data\.mix\[0\]\.weight: wanted a number above 0, found 0"),
        ('mix = [{ shards = "dataset:a", weight = -1 }]', r"data\.mix\[0\]\.weight: wanted a number above 0"),
        ('mix = [{ shards = "dataset:a", weight = inf }]', r"data\.mix\[0\]\.weight: wanted a finite number"),
        ('mix = [{ shards = "data/a.json", weight = 1 }]', r"data\.mix\[0\]\.shards: wanted dataset:NAME"),
        (
            'shards = ["dataset:b"]\nmix = [{ shards = "dataset:a", weight = 1 }]',
            r"data\.mix: wanted one of data\.mix and",
        ),
        ('text = ["repo:b"]\nmix = [{ shards = "dataset:a", weight = 1 }]', r"data\.mix: wanted one of data\.mix and"),
        ('shards = ["dataset:a"]\nwindow = 0', r"data\.window: wanted at least 1"),
        ('shards = ["dataset:a"]\nparts = 0', r"data\.parts: wanted at least 1"),
        ('shards = ["dataset:a"]\nparts = 3', r"data\.parts: wanted a divisor of train\.global_batch = 8, found 3"),
        ('shards = ["dataset:a"]\nworkers = -1', r"data\.workers: wanted at least 0"),
        ('shards = ["dataset:a"]\nworkers = 65', r"data\.workers: wanted at most 64"),
        ('shards = ["dataset:a"]\nprefetch = 0', r"data\.prefetch: wanted at least 1"),
        ('shards = ["dataset:a"]\nprefetch = 1001', r"data\.prefetch: wanted at most 1000"),
        ('shards = ["dataset:a"]\norder = "any"', r"data\.order"),
        (
            'text = ["repo:a"]\norder = "window"',
            r"data\.order: wanted data sets in data\.shards or data\.mix, found none",
        ),
        ('text = ["repo:a"]\nparts = 2', r"data\.parts: wanted data sets"),
        ('text = ["repo:a"]\nwindow = 2', r"data\.window: wanted data sets"),
        (
            "mix = [" + ",".join(f'{{ shards = "dataset:a{n}", weight = 1 }}' for n in range(101)) + "]",
            "at most 100 data sets",
        ),
        ('shards = ["datasets/wiki/3f2a91c4.json"]', r"data\.shards\[0\]: wanted .* which gangline keeps for itself"),
    ],
)
def test_lines_that_name_them_otherwise_are_refused_by_key(text, problem):
    with pytest.raises(FileError, match=problem):
        load(f"[data]\n{text}\n")


@pytest.mark.parametrize(
    ("head", "text", "problem"),
    [
        (COMMAND, 'publish = { dataset = "Wiki" }', r"publish\.dataset: wanted a name of"),
        (
            COMMAND,
            'publish = { dataset = "wiki", model = "demo" }',
            r"publish\.dataset: wanted nothing with publish\.model",
        ),
        (
            COMMAND,
            'publish = { dataset = "wiki", files = ["a"] }',
            r"publish\.dataset: wanted nothing with publish\.files",
        ),
        (TASK, 'publish = { dataset = "wiki" }', r"publish\.dataset: wanted nothing for a task"),
        (
            COMMAND.replace(', outputs = ["out/*.arrow"]', ""),
            'publish = { dataset = "wiki" }',
            r"wanted project\.outputs",
        ),
    ],
)
def test_a_run_makes_a_data_set_of_outputs_or_a_model(head, text, problem):
    assert load('publish = { dataset = "wiki" }', COMMAND).publish.dataset == "wiki"
    with pytest.raises(FileError, match=problem):
        load(text, head)


def test_lines_of_before_keep_their_digest():
    assert line_digest(load("")) == line_digest(load("[data]\nwindow = 8\nparts = 1\nworkers = 'auto'\nprefetch = 2\n"))
    assert line_digest(load("")) != line_digest(load("[data]\nshards = ['dataset:a']\n"))

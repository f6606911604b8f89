"""What a program gets of its line in the words of its command."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.spec.config.load import load_line_text
from gangline.spec.config.problems import FileError
from gangline.spec.program_words import missing_keys, program_words

LINE = """
[project]
name = "words"
command = ["python", "train.py", "--lr", "{model.lr}", "--kind={model.net.kind}-{seed}", "{other} {}", "{model}"]
[model]
lr = 1e-05
deep = true
[model.net]
kind = "wide"
[train]
steps = 1
global_batch = 1
"""


def words(*overrides):
    line = load_line_text(LINE, file="line.toml", overrides=overrides)
    return program_words(line.project.command, seed=7, model=line.model)


def test_keys_of_model_and_the_seed_are_put_in_and_other_braces_stay():
    assert words() == ("python", "train.py", "--lr", "1e-05", "--kind=wide-7", "{other} {}", "{model}")
    assert words("model.lr=32", 'model.net.kind="a b"')[3:5] == ("32", "--kind=a b-7")
    assert words("model.lr=true")[3] == "true"


@pytest.mark.parametrize(("override", "key"), [("model.lr=[1, 2]", "model.lr"), ("model.net={}", "model.net.kind")])
def test_a_key_that_is_no_value_is_refused_before_anything_runs(override, key):
    with pytest.raises(FileError) as raised:
        words(override)
    [problem] = raised.value.problems
    assert problem.key == key
    assert "of project.command" in problem.wanted


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_back_as_it_was(value):
    [word] = program_words(["{model.x}"], seed=1, model={"x": value})
    assert float(word) == value
    assert list(missing_keys(["{model.x}"], {"x": value})) == []

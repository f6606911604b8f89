"""What is refused of a task and its optimizer by the source text alone."""

import pytest

from gangline.errors import ConfigError
from gangline.line.request.run_request import check_task

WRONG = {"elementwise": {"rule": "adan"}}


def check(text, optimizer=WRONG):
    check_task("model:Task", lambda path: text.encode() if path == "model.py" else None, optimizer=optimizer)


@pytest.mark.parametrize("text", ["class Task: ...", "class Base: ...\nclass Task(Base): ..."])
def test_an_optimizer_that_ranks_would_refuse_is_refused_before_any_starts(text):
    with pytest.raises(ConfigError, match=r'^line.toml: optimizer.elementwise.rule: .* did you mean "adamw"'):
        check(text)
    check(text, {"elementwise": {"rule": "sgd"}})


@pytest.mark.parametrize(
    "text",
    [
        "class Task:\n    def build_optimizer(self, model, options): ...",
        "from others import Base\nclass Task(Base): ...",
        "import others\nclass Task(others.Base): ...",
        "from others import Task",
        "@others\nclass Task: ...",
    ],
)
def test_a_task_that_may_build_its_own_optimizer_reads_the_table_as_it_likes(text):
    check(text)

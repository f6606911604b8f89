"""Tasks by name; and names that cost no torch."""

import subprocess
import sys

import pytest

from gangline.errors import ConfigError
from gangline.train.task import hints_of, load_task


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("taskfile", "broken"):
        sys.modules.pop(name, None)


WHOLE = """
class Whole:
    def build_model(self, o): ...
    def build_data(self, s, o): ...
    def loss(self, o, b): ...
"""


def test_task_is_made(repository):
    (repository / "taskfile.py").write_text(WHOLE)
    assert type(load_task("taskfile:Whole")).__name__ == "Whole"


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (WHOLE, "taskfil:Whole", "no module 'taskfil' in the code layer"),
        (WHOLE, "taskfile:Hole", r"taskfile has no 'Hole'; its classes are \['Whole'\]"),
        (
            "class Half:\n    def loss(self, o, b): ...\n",
            "taskfile:Half",
            r"\['build_model', 'build_data'\] are missing",
        ),
    ],
)
def test_mistake_names_what_is_there(repository, source, name, message):
    (repository / "taskfile.py").write_text(source)
    with pytest.raises(ConfigError, match=message):
        load_task(name)


def test_import_that_a_task_lacks_is_its_own_error(repository):
    (repository / "broken.py").write_text("import surely_not_installed\n")
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        load_task("broken:Task")


def test_hints_of_another_type_are_refused():
    class Wrong:
        hints = {"blocks": "layers.*"}  # noqa: RUF012  # the mistake itself

    with pytest.raises(ConfigError, match=r"wanted gangline.train.ParallelHints"):
        hints_of(Wrong())


def test_names_of_a_model_repository_import_no_torch():
    code = "import sys; from gangline.train import Loss, ParallelHints, heartbeat; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

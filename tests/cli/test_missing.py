"""What is not installed is named with what installs it, by every command that needs it."""

import subprocess
import sys

import pytest

HIDDEN = "import sys\nfor name in {hidden!r}: sys.modules[name] = None\nsys.argv = ['gangline', *{arguments!r}]\n"
MAIN = "from gangline.cli.main import main\nmain()"


@pytest.mark.parametrize(
    ("hidden", "arguments", "extra"),
    [
        (("fastapi",), ("serve",), "gangline[serve]"),
        (("uvicorn",), ("serve",), "gangline[serve]"),
        (("yaml",), ("emit", "job"), "gangline[kubernetes]"),
        (
            ("psycopg",),
            ("token", "list", "--database", "postgresql://nobody@127.0.0.1:1/x"),
            "gangline[serve,postgres]",
        ),
    ],
)
def test_a_missing_package_is_a_config_error_that_names_its_extra(workspace, hidden, arguments, extra):
    code = HIDDEN.format(hidden=hidden, arguments=(*arguments, "--repo", str(workspace))) + MAIN
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 10
    assert f"pip install '{extra}'" in done.stderr
    assert "bug" not in done.stderr

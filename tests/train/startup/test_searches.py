"""Searches for files of the code layer that found nothing, as a rank reports them."""

import pytest

SEARCHES = """\
import glob, os, pathlib
glob.glob("docs/*.md")
list(glob.iglob("*.txt", root_dir="data"))
glob.glob("docs/*.md")
list(pathlib.Path("pages").rglob("*.md"))
list(pathlib.Path(".").glob("*.csv"))
list(os.walk("gone"))
os.listdir("there")
os.listdir()
glob.glob("/etc/*.conf")
glob.glob("../*.md")
"""


def test_patterns_and_folders_that_are_not_there_are_reported_once_each(workspace):
    (workspace.code / "there").mkdir()
    done = workspace.run(SEARCHES)
    assert done.returncode == 0, done.stderr
    found = [line["pattern"] for line in workspace.lines("search")]
    assert found == ["docs/*.md", "data/*.txt", "pages/**/*.md", "*.csv", "gone"]
    assert workspace.lines("unseen") == []


@pytest.mark.parametrize("call", ["os.listdir(os.open('.', os.O_RDONLY))", "os.listdir(b'.')", "glob.glob(b'*.md')"])
def test_searches_of_any_form_break_no_program(workspace, call):
    done = workspace.run(f"import glob, os\n{call}\nprint('on')")
    assert done.stdout == "on\n", done.stderr
    assert workspace.lines("unseen") == []


def test_a_program_with_many_searches_reports_the_first_twenty(workspace):
    workspace.run("import glob\nfor n in range(100): glob.glob(f'{n}/*.md')")
    assert len(workspace.lines("search")) == 20

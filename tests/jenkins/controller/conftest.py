"""A Jenkins over a real repository whose training waits until the test lets it go on."""

import subprocess

import pytest
from tests.jenkins.controller.engine import compile_controller
from tests.jenkins.controller.jenkins import Jenkins
from tests.line import repositories

PROGRAM = """\
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
out = pathlib.Path(os.environ["GANGLINE_OUT"])
if os.environ["RANK"] == "0":
    with (out / "begun").open("a") as begun:
        begun.write(os.environ["GANGLINE_RUN"] + "\\n")
    (out / "environ").write_text(repr(dict(os.environ)))
    place = pathlib.Path({place!r})
    while place.exists() and not (place / "go").exists():
        time.sleep(0.05)
"""


@pytest.fixture(scope="session")
def class_path(tmp_path_factory):
    return compile_controller(tmp_path_factory.mktemp("jenkins") / "classes")


@pytest.fixture
def place(tmp_path):
    """Where training of own commits waits for the file `go`; forks see no folder of the machine and wait for nobody."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


STUB = """\
#!/bin/sh
# a gangline that answers at once: exit codes of a stage, one a line, from the file of its name; seconds from `hang`
cd {place}
next() {{ head -n 1 "$1" 2>/dev/null; sed -i 1d "$1" 2>/dev/null; }}
[ "$2" = train ] && sleep "$(next hang)0"
case "$1 $2" in
    "stage resolve") git -C "$OLDPWD" rev-parse HEAD >> {heads}
        code=$(next code); cat resolve; exit "${{code:-0}}" ;;
    "stage "*) code=$(next "$2"); exit "${{code:-0}}" ;;
    "cancel "*) code=$(next cancel); exit "${{code:-70}}" ;;
    "approve "*) code=$(next approve); exit "${{code:-0}}" ;;
    "show "*) echo "open | $2"; next ends || true ;;
    "report "*) code=$(next page); [ -z "$code" ] || exit "$code"
        echo "<testsuite><testcase/></testsuite>" > "$OLDPWD/$6" ;;
esac
"""
"""The sixth word of a report is its file."""


@pytest.fixture
def quick(tmp_path, class_path, place):
    """A Jenkins whose gangline is a stub: for what the pipeline itself does."""
    stub = tmp_path / "gangline"
    stub.write_text(STUB.format(place=place, heads=tmp_path / "jenkins" / "heads"))
    stub.chmod(0o755)
    (place / "resolve").write_text("resolve   0.1 s\ndemo-9f31c2a0-k7q2mx\n")
    repo = repositories.make_repository(tmp_path / "origin", {"line.toml": repositories.LINE})
    (tmp_path / "jenkins").mkdir()
    found = Jenkins(tmp_path / "jenkins", class_path, repo, tmp_path / "store", gangline=stub)
    yield found
    found.close()


@pytest.fixture
def jenkins(tmp_path, class_path, place):
    program = PROGRAM.format(place=str(place)) + repositories.PROGRAM
    files = {"line.toml": repositories.LINE, "answer.py": program}
    repo = repositories.make_repository(tmp_path / "origin", files)
    (tmp_path / "jenkins").mkdir()
    found = Jenkins(tmp_path / "jenkins", class_path, repo, tmp_path / "store", shown=place)
    subprocess.run(["git", "clone", "-q", str(repo), str(found.workspace)], check=True)
    repositories.settle_inventory(found.workspace)
    yield found
    (place / "go").touch()
    found.close()

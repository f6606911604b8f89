"""The command line as a whole: light, complete, and ending with the code and one message."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command

from gangline.cli.main import ENTRIES, _load, _single

HEAVY = ("torch", "rich", "jinja2", "cattrs", "numpy", "minio", "cryptography", "structlog")


def gangline(*arguments: str, cwd=None, env=None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", **(env or {})}
    command = [sys.executable, "-m", "gangline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120, check=False)


def test_help_imports_nothing_heavy_and_no_command():
    code = (
        "import sys\nfrom gangline.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print([m for m in sys.modules if m.split('.')[0] in "
        f"{HEAVY!r} or m.startswith('gangline.cli.commands.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_plan_imports_neither_logs_nor_keys_nor_servers_clients_nor_what_other_lines_need():
    """Each is 20 to 100 ms of a command that is to answer in 300."""
    code = (
        "import sys\nimport gangline.cli.commands.plan, gangline.line.stages.preview\n"
        "print([m for m in sys.modules if m.startswith(('gangline.optim.', 'gangline.planner.formula.evaluate', "
        "'gangline.planner.formula.unlike', 'gangline.fabric.probe.', 'gangline.git.mirror', 'gangline.data.versions', "
        "'gangline.data.tracked_files')) or m.split('.')[0] in "
        "('torch', 'rich', 'structlog', 'cryptography', 'stamina', 'urllib3', 'kubernetes', 'packaging')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("words", "loads"), [("--terms fsdp-2", False), ("--budget 3", True)])
def test_text_and_what_is_not_given_are_read_without_pydantic(words, loads, tmp_path):
    code = (
        "import sys\nfrom gangline.cli.main import app\n"
        f"try:\n    app(['plan', *{words.split()!r}])\nexcept BaseException:\n    pass\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1] == str(loads)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("plan", "model --set a=1 --set b=2 --gpus 16 --budget 3.5 --site s.toml --why"), ("plan", ""),
        ("resize", "abc 4"), ("drill", "oom --rank 3 --seconds 1.5"), ("list", "--json"),
    ],
)  # fmt: skip
def test_values_are_those_of_typer(name, words):
    module = import_module(f"gangline.cli.commands.{name}")
    entry = next(each for each in ENTRIES if each.name == name)
    theirs = get_command(_single(module)).make_context(name, words.split(), resilient_parsing=False)
    ours = _load(entry, "gangline.cli.commands").make_context(name, words.split(), resilient_parsing=False)
    assert ours.params == theirs.params
    assert [type(each) for each in ours.params.values()] == [type(each) for each in theirs.params.values()]


def test_help_lists_every_command():
    text = gangline("--help").stdout
    for entry in ENTRIES:
        assert f"  {entry.name} " in text


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES])
def test_every_command_explains_itself(name):
    from typer.testing import CliRunner

    from gangline.cli.main import app

    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_unknown_command_and_option_exit_2():
    assert gangline("frobnicate").returncode == 2
    assert gangline("list", "--nope").returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
def test_a_full_disk_behind_stdout_is_not_a_bug():
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "gangline", "metrics", "check", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (40, "error: wanted to write the output, found: No space left on device\n")


def test_without_a_repository_the_message_says_what_works(tmp_path):
    done = gangline("list", cwd=tmp_path, env={"GANGLINE_SITE": ""})
    assert done.returncode == 10
    assert done.stdout == ""
    assert "line.toml" in done.stderr
    assert done.stderr.index("gangline init") < done.stderr.index("gangline new NAME")
    assert not (tmp_path / ".gangline").exists()


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path):
    done = gangline("list", "-C", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "found nothing" in done.stderr


def test_a_wrong_site_names_file_and_key(tmp_path):
    (tmp_path / "line.toml").touch()
    site = tmp_path / "site.toml"
    site.write_text('[store]\nurll = "file:x"\n')
    done = gangline("list", "-C", str(tmp_path), "--site", str(site))
    assert done.returncode == 10
    assert "store.urll" in done.stderr


def test_an_internal_error_is_one_message_and_a_traceback_on_request(tmp_path):
    code = "import gangline.cli.main as m\ndef boom(): raise RuntimeError('kaputt')\nm.app = boom\nm.main()"
    run = [sys.executable, "-c", code]
    quiet = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60, env={**os.environ})
    assert quiet.returncode == 1
    assert "kaputt" in quiet.stderr
    assert "Traceback" not in quiet.stderr
    loud = subprocess.run(
        run, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "GANGLINE_DEBUG": "1"}
    )
    assert "Traceback" in loud.stderr


def test_a_message_that_repeats_hostile_words_does_not_steer_the_terminal():
    code = (
        "import gangline.cli.main as m\nfrom gangline.errors import ConfigError\n"
        "def boom(): raise ConfigError('found \\x1b[2Jgone\\nsecond \\u202eline')\n"
        "m.app = boom\nm.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 10
    assert done.stderr == "error: found gone\nsecond line\n"

"""Commands that read: list, show, report, diff, logs; by id, beginning of an id, commit, or the newest."""

import json
import shutil
import subprocess
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest
from jsonschema import Draft202012Validator
from tests.report import records

from gangline.errors import GanglineError, UsageError
from gangline.launch.protocol import GangEvent
from gangline.report.progress import StageProgress
from gangline.spec.program_files import OutputFile, Outputs
from gangline.spec.record import Artifact, Record
from gangline.storage.open import open_store


def message(result) -> str:
    assert isinstance(result.exception, GanglineError), result.output
    return str(result.exception)


def test_list_shows_the_newest_first(gangline):
    lines = gangline("list").stdout.splitlines()
    assert lines[0].split()[:3] == ["RUN", "VERDICT", "BRANCH"]
    assert [line.split()[1] for line in lines[1:]] == ["refused", "failed", "passed,"]
    assert "  passed, 1 gate could not judge  " in lines[3]


@pytest.mark.parametrize(
    ("flags", "verdicts"),
    [
        (["--verdict", "passed"], ["passed"]),
        (["--branch", "narrower"], ["refused"]),
        (["--commit", "9f31c2a0"], ["failed", "passed"]),
        (["--limit", "1"], ["refused"]),
        (["--branch", "none"], []),
    ],
)
def test_list_filters(gangline, flags, verdicts):
    assert [row["verdict"] for row in json.loads(gangline("list", "--json", *flags).stdout)] == verdicts


def test_show_json_is_the_record_itself(gangline):
    shown = gangline("show", records.THIS_RUN, "--json").stdout
    assert Record.from_json(shown).run.id == records.THIS_RUN


def test_a_unique_beginning_names_a_run_and_no_name_the_newest(gangline):
    assert records.THIS_RUN in gangline("show", "bytegpt-55", "--oneline").stdout
    assert records.THIS_RUN in gangline("show", "--oneline").stdout


def test_a_run_that_only_measures_a_commit_is_marked_and_is_not_the_newest(gangline, workspace):
    whole = records.refused()
    run = replace(whole.run, id=whole.run.id[:-1] + "a", created="2027-01-01T00:00:00Z")
    values = {**whole.inputs.values, "train.stop_at": 60}
    cut = replace(whole, run=run, inputs=replace(whole.inputs, values=values))
    open_store(f"file:{workspace / '.gangline' / 'store'}").put(f"{cut.prefix}/record.json", cut.to_json())
    assert "ddp-2 to 60" in gangline("list").stdout.splitlines()[1]
    assert records.THIS_RUN in gangline("show", "--oneline").stdout


def test_the_end_of_a_gang_is_a_line_of_its_own_where_steps_tell(gangline, workspace, monkeypatch):
    whole = records.passed()
    going = replace(whole, run=replace(whole.run, state="open", verdict=None))
    open_store(f"file:{workspace / '.gangline' / 'store'}").put(f"{going.prefix}/record.json", going.to_json())
    progress = StageProgress("train", steps=60)
    monkeypatch.setattr("gangline.line.run.watch.read_progress", lambda *_, **__: progress)
    ask = ("show", going.run.id, "--oneline", "--ends-in")
    assert len(gangline(*ask).stdout.splitlines()) == 1
    for number in (28, 29, 30):
        progress.see(GangEvent(kind="progress", data={"event": "step", "rank": 0, "step": number, "seconds": 2.41}))
    assert gangline(*ask).stdout.splitlines()[1:] == ["73"]
    assert len(gangline(*ask[:3]).stdout.splitlines()) == 1
    assert gangline("show", "--ends-in").exit_code == 2


@pytest.mark.parametrize("command", ["show", "report", "logs", "follow", "cancel"])
def test_an_unknown_run_is_a_usage_error_that_names_list(gangline, command):
    result = gangline(command, "nosuch-12345678-abcdef")
    assert result.exit_code == 2
    assert "gangline list" in message(result)


def test_an_ambiguous_beginning_names_the_candidates(gangline):
    result = gangline("show", "bytegpt-9f")
    assert result.exit_code == 2
    assert records.BASE_RUN in message(result)
    assert "zzzzzz" in message(result)


def test_show_survives_a_record_that_does_not_hold(gangline, workspace):
    path = workspace / ".gangline" / "store" / records.passed().prefix / "record.json"
    path.write_text('{"schema":1,"run":"garbage"}')
    result = gangline("show", records.BASE_RUN)
    assert result.exit_code == 50


def test_report_is_written_next_to_the_store_and_names_the_difference(gangline, workspace):
    result = gangline("report", records.THIS_RUN)
    path = workspace / ".gangline" / "reports" / f"{records.THIS_RUN}.html"
    assert result.stdout.strip() == str(path)
    assert 'model.width</th><td class="wide">128</td><td class="wide">64' in path.read_text("utf-8")


def test_where_nothing_can_be_written_runs_are_listed_and_reports_drawn_elsewhere(
    gangline, workspace, tmp_path, monkeypatch
):
    (tmp_path / "spare").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spare"))
    (workspace / ".gangline" / "reports").write_text("in the way")
    path = Path(gangline("report", records.THIS_RUN).stdout.strip())
    assert path.is_relative_to(tmp_path / "spare")
    assert path.read_text().startswith("<!DOCTYPE html>")
    shutil.rmtree(workspace / ".gangline")
    (workspace / ".gangline").symlink_to("/proc/nowhere")
    assert gangline("list").stdout == "no runs yet; gangline run makes one\n"


def test_report_formats_go_to_stdout(gangline):
    assert gangline("report", "--format", "markdown", "--out", "-").stdout.startswith("**✗ refused**")
    assert fromstring(gangline("report", "--format", "junit", "--out", "-").stdout).tag == "testsuites"
    assert gangline("report", "--format", "pdf").exit_code == 2


def test_diff_judges_the_second_run_against_the_first(gangline):
    result = gangline("diff", records.BASE_RUN, records.THIS_RUN)
    assert result.stdout.startswith("WORSE")
    assert result.exit_code == 0
    assert gangline("diff", records.BASE_RUN, "--fail-on-worse").exit_code == 60
    assert gangline("diff", records.BASE_RUN, records.BASE_RUN, "--fail-on-worse").exit_code == 0


def test_diff_that_compared_nothing_does_not_pass_for_no_worse(gangline):
    result = gangline("diff", records.BASE_RUN, "bytegpt-9f31c2a0-zzzzzz", "--fail-on-worse")
    assert result.stdout.startswith("NOT COMPARABLE")
    assert result.exception.exit_code == 60
    assert "wanted BETTER or SAME, found NOT COMPARABLE: bytegpt-9f31c2a0-zzzzzz has no metrics" in message(result)
    assert gangline("diff", records.BASE_RUN, "bytegpt-9f31c2a0-zzzzzz").exit_code == 0


def test_diff_json_holds_numbers_and_changes(gangline):
    document = json.loads(gangline("diff", records.BASE_RUN, records.THIS_RUN, "--json").stdout)
    assert document["outcome"] == "WORSE"
    assert document["changes"] == [{"base": "128", "kind": "line", "name": "model.width", "this": "64"}]


def test_diff_json_fits_its_published_schema(gangline):
    schema = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "comparison.json").read_text())
    assert list(Draft202012Validator(schema).iter_errors(json.loads(gangline("diff", "--json").stdout))) == []


def test_diff_without_names_judges_the_newest_run_against_its_base(gangline):
    asked = gangline("diff").stdout
    assert asked == gangline("diff", "base", records.THIS_RUN).stdout
    assert asked == gangline("diff", f"base:{records.THIS_RUN}", records.THIS_RUN).stdout
    assert f"base  {records.BASE_RUN}" in asked
    assert "has no base" in message(gangline("diff", "base", records.BASE_RUN))


def test_diff_writes_pages_for_builds(gangline, tmp_path):
    page = tmp_path / "out" / "diff.html"
    assert gangline("diff", "--format", "html", "--out", str(page)).stdout.strip() == str(page)
    assert "WORSE" in page.read_text()
    assert gangline("diff", "--format", "markdown").stdout.startswith("**✗ WORSE**")
    assert gangline("diff", "--format", "pdf").exit_code == 2


def test_diff_of_a_commit_without_a_run_says_how_to_make_one(gangline):
    result = gangline("diff", "HEAD")
    assert result.exit_code == 2
    assert "gangline run --commit HEAD" in message(result)
    assert gangline("diff", "no-such-thing").exit_code == 2


def test_logs_that_are_empty_say_so(gangline, monkeypatch):
    monkeypatch.setattr("gangline.cli.commands.logs.open_launcher", lambda *_, **__: NoLines())
    shown = gangline("logs", records.THIS_RUN)
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr.startswith("no line of these ranks yet; gangline show ")


class NoLines:
    def logs(self, *_, **__):
        return iter(())


def test_logs_of_a_gang_that_was_swept_come_from_the_store(gangline, workspace, monkeypatch):
    monkeypatch.setattr("gangline.cli.commands.logs.open_launcher", lambda *_, **__: Swept())
    assert "no gang" in message(gangline("logs", records.THIS_RUN))
    store, prefix = open_store(f"file:{workspace / '.gangline' / 'store'}"), records.refused().gang_prefix
    store.put(f"{prefix}/logs/1.log", b"one\ntwo\n")
    store.put(f"{prefix}/evaluate/logs/0.log", b"other\n")
    assert gangline("logs", records.THIS_RUN, "--all").stdout == "r01│ one\nr01│ two\n"
    assert gangline("logs", records.THIS_RUN, "--role", "evaluate").stdout == "r00│ other\n"
    assert "--all prints what each one left" in message(gangline("logs", records.THIS_RUN, "--failed"))


class Swept:
    def logs(self, *_, **__):
        raise UsageError("there is no gang")

    def collect(self, _):
        raise UsageError("there is no gang")


def test_logs_need_a_gang_known_ranks_and_a_while_that_reads(gangline):
    assert gangline("logs", records.BASE_RUN, "--since", "yesterday").exit_code == 2
    assert gangline("logs", records.BASE_RUN, "--rank", "x").exit_code == 2
    assert gangline("logs", records.BASE_RUN, "--rank", "1", "--all").exit_code == 2
    assert gangline("logs", records.BASE_RUN, "--role", "cook").exit_code == 2


def test_from_a_folder_inside_the_repository_the_same_store_is_found(gangline, workspace, monkeypatch):
    inner = workspace / "deep" / "er"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert len(gangline("list").stdout.splitlines()) == 4


def test_a_folder_above_the_git_repository_is_never_taken(workspace, monkeypatch, gangline):
    (workspace.parent / "line.toml").touch()
    outside = workspace.parent / "outside"
    outside.mkdir()
    monkeypatch.chdir(outside)
    assert gangline("list").exit_code == 10


def test_run_and_plan_say_what_a_folder_lacks(gangline, tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    for command in ("run", "plan"):
        assert gangline(command).exit_code == 10
    (empty / "line.toml").touch()
    for command in ("run", "plan"):
        result = gangline(command)
        assert result.exit_code == 2
        assert "git init" in message(result)


def test_run_of_a_commit_that_does_not_exist_is_a_usage_error(gangline):
    result = gangline("run", "--commit", "0123456789abcdef")
    assert result.exit_code == 2
    assert "0123456789abcdef" in message(result)


def test_stage_names_and_runs_are_checked_first(gangline):
    assert gangline("stage", "bake").exit_code == 2
    assert "gangline stage resolve" in message(gangline("stage", "train"))


def test_run_with_an_unknown_key_in_the_line_names_it(gangline, workspace):
    (workspace / "line.toml").write_text((workspace / "line.toml").read_text() + "\nstepz = 3\n")
    subprocess.run(
        ["git", "-C", str(workspace), "-c", "user.name=t", "-c", "user.email=t@e", "commit", "-qam", "x"], check=True
    )
    result = gangline("run")
    assert result.exit_code == 10
    assert "stepz" in message(result)


def test_store_doctor_finds_conditional_writes(gangline):
    document = json.loads(gangline("store", "doctor", "--json").stdout)
    assert document["conditional_writes"] is True
    assert all(check["passed"] for check in document["checks"])


def test_metrics_of_ended_runs_are_open_metrics(gangline):
    text = gangline("metrics", "export", "--all").stdout
    assert text.rstrip().endswith("# EOF")
    assert records.BASE_RUN in text


def test_store_copy_is_verified_and_continues_where_it_stopped(gangline, tmp_path):
    first = gangline("store", "copy", "--to", f"file:{tmp_path / 'copy'}", "--json")
    assert json.loads(first.stdout)["num_copied"] == 3
    again = gangline("store", "copy", "--to", f"file:{tmp_path / 'copy'}")
    assert again.stdout.startswith("copied 0 objects, 0 B · 3 were there already")
    back = gangline("store", "copy", "--from", f"file:{tmp_path / 'copy'}", "--to", f"file:{tmp_path / 'third'}")
    assert back.stdout.startswith("copied 3 objects")


def test_store_copy_refuses_a_literal_secret_and_an_unknown_scheme(gangline):
    secret = gangline("store", "copy", "--to", "s3://b/p?endpoint=http://127.0.0.1:1", "--to-credentials", "AKIA:hush")
    assert secret.exit_code == 10
    assert "hush" not in message(secret)
    assert gangline("store", "copy", "--to", "ftp://x").exit_code == 10


@pytest.mark.parametrize("command", ["run", "plan", "list", "show", "report", "diff"])
def test_every_command_of_a_repository_takes_it_by_the_same_option(gangline, command, tmp_path):
    result = gangline(command, "-C", str(tmp_path / "nowhere"))
    assert (result.exit_code, str(result.exception)) == (2, f"wanted a folder, found nothing at {tmp_path / 'nowhere'}")


def test_artifacts_lists_what_a_run_left_and_fetches_outputs(gangline, workspace):
    record, store = records.passed(), open_store(f"file:{workspace / '.gangline' / 'store'}")
    digest = sha256(b"weights").hexdigest()
    listed = Outputs(gang="g", files=(OutputFile(path="out/model.pt", size_bytes=7, sha256=digest),)).to_json()
    key = f"{record.gang_prefix}/outputs.json"
    store.put(key, listed)
    store.put(f"{record.gang_prefix}/outputs/{digest}", b"weights")
    artifact = Artifact(
        kind="outputs", key=key, media_type="application/json", size_bytes=len(listed),
        sha256=sha256(listed).hexdigest(),
    )  # fmt: skip
    store.put(f"{record.prefix}/record.json", replace(record, artifacts=(*record.artifacts, artifact)).to_json())
    shown = gangline("artifacts", record.run.id).stdout.splitlines()[-1]
    assert shown.split() == ["output", "7", "B", digest[:12], "out/model.pt"]
    found = json.loads(gangline("artifacts", record.run.id, "--get", "out/*", "--to", "got", "--json").stdout)
    assert [each["path"] for each in found["fetched"]] == ["got/out/model.pt"]
    assert (workspace / "got/out/model.pt").read_bytes() == b"weights"
    assert gangline("artifacts", record.run.id, "--get", "*.onnx").exit_code == 2
    assert gangline("artifacts", record.run.id, "--to", "got").exit_code == 2

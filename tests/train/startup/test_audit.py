"""What a program tells of itself, whatever it is and however it ends; and that being watched breaks none."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gangline.spec.python_environment import STARTUP
from gangline.train.startup import audit, devices, file_reads, report_file

READ = "import os; labels = open(os.environ['OUTSIDE'] + '/labels.txt').read()\n"


def test_a_file_that_nothing_declares_is_reported_once_with_its_size(workspace):
    done = workspace.run(READ * 3 + "open('program.py').read(); import json; open(json.__file__).read()\n")
    assert done.returncode == 0, done.stderr
    (read,) = workspace.lines("read")
    assert (read["path"], read["size_bytes"]) == (str(workspace.outside / "labels.txt"), 5)


def test_what_the_launcher_gave_a_gang_is_not_an_input_of_it(workspace):
    """A gang in a sandbox has its secrets beside its home."""
    secrets = workspace.outside.parent / "secrets"
    secrets.mkdir()
    for name in ("checkpoint-key", "store-credentials"):
        (secrets / name).write_text("value")
    text = "import os\nfor each in os.listdir(os.environ['SECRETS']): open(os.environ['SECRETS'] + '/' + each).read()\n"
    own = {"GANGLINE_KEY_FILE": f"{secrets}/checkpoint-key", "SECRETS": str(secrets)}
    assert workspace.run(READ + text, **own).returncode == 0
    assert [read["path"] for read in workspace.lines("read")] == [str(workspace.outside / "labels.txt")]


def test_what_a_program_wrote_itself_is_not_an_input_of_it(workspace):
    workspace.run(
        "import os; path = os.environ['OUTSIDE'] + '/own.txt'\nopen(path, 'w').write('1')\nopen(path).read()\n"
        "import contextlib\nwith contextlib.suppress(OSError): open(os.environ['OUTSIDE'] + '/absent')\n"
        "os.listdir(os.environ['OUTSIDE']); os.close(os.open(os.environ['OUTSIDE'], os.O_RDONLY))\n"
    )
    assert workspace.lines("read") == []
    assert len(workspace.lines("ran")) == 1


def test_a_temporary_file_is_an_input_where_it_is_older_than_the_gang(workspace):
    """Whatever time of change was set."""
    plan, old = workspace.outside / "plan.json", workspace.outside / "labels.txt"
    plan.write_text("{}")
    born = old.stat().st_ctime + 0.01
    os.utime(plan, (born, born))
    os.utime(old, (born + 60, born + 60))
    while old.stat().st_ctime >= born:  # the clock of files ticks a few hundred times a second
        born = old.stat().st_ctime + 0.01
        os.utime(plan, (born, born))
    time.sleep(0.02)
    (workspace.outside / "of-another-rank").write_text("1")
    own = {"TMPDIR": str(workspace.outside), "GANGLINE_PLAN": str(plan)}
    text = "open(os.environ['OUTSIDE'] + '/of-another-rank').read()\n"
    assert workspace.run(READ + text, **own).returncode == 0
    assert [read["path"] for read in workspace.lines("read")] == [str(workspace.outside / "labels.txt")]


CUDA = """\
import sys, types
def name(at):
    if at == 3: raise RuntimeError("CUDA error")
    return ["GPU A", "GPU B", "GPU A"][at]
cuda = types.SimpleNamespace(is_initialized=lambda: {begun}, device_count=lambda: {count}, get_device_name=name,
                             max_memory_reserved=lambda at: at != 1)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
"""


@pytest.mark.parametrize(
    ("begun", "count", "reported"), [(True, 2, ["GPU A"]), (True, 3, ["GPU A"]), (False, 2, []), (True, 4, [])]
)
def test_kinds_of_gpu_with_memory_of_this_process_are_reported_once(workspace, begun, count, reported):
    """A device that is lost takes nothing else along."""
    done = workspace.run(CUDA.format(begun=begun, count=count) + READ)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line["name"] for line in workspace.lines("gpu")] == reported
    assert len(workspace.lines("read")) == len(workspace.lines("ran")) == 1


def test_without_torch_the_kind_of_an_open_device_is_reported_where_all_are_of_one_kind(tmp_path, monkeypatch):
    driver, files = tmp_path / "driver", tmp_path / "files"
    monkeypatch.setattr(devices, "_OF_DRIVER", str(driver))
    monkeypatch.setattr(devices, "_OPEN_FILES", str(files))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    files.mkdir()
    (files / "3").symlink_to("/dev/nvidiactl")
    (driver / "0000:0").mkdir(parents=True)
    (driver / "0000:0" / "information").write_text("Model: \t\t NVIDIA H100\nIRQ: 5\n")
    assert devices.gpu_names() == set(), "a framework that is only imported computes on no GPU"
    (files / "4").symlink_to("/dev/nvidia0")
    assert devices.gpu_names() == {"NVIDIA H100"}
    (driver / "0000:1").mkdir()
    (driver / "0000:1" / "information").write_text("Model: NVIDIA L4\n")
    assert devices.gpu_names() == set()


def test_paths_of_every_kind_are_taken_and_many_are_counted(workspace):
    text = (
        "import os, pathlib\nfolder = os.environ['OUTSIDE']\nopen(pathlib.Path(folder, 'labels.txt')).read()\n"
        "open(os.fsencode(folder) + b'/labels.txt').read(); os.close(os.open(folder + '/labels.txt', os.O_RDONLY))\n"
        "open(0, closefd=False)\n"
        "for n in range(130): pathlib.Path(folder, str(n)).hardlink_to(folder + '/labels.txt')\n"
        "for n in range(130): open(f'{folder}/{n}').read()\n"
    )
    done = workspace.run(text)
    assert done.returncode == 0, done.stderr
    assert len(workspace.lines("read")) == file_reads.MOST_READS
    assert workspace.lines("ran")[-1]["reads"] >= 131
    (unseen,) = workspace.lines("unseen")
    assert unseen["why"] == "files beyond the first 100 of a process", "which a worker says that has no last report"


def test_a_file_that_is_opened_to_be_continued_is_read_if_there_is_something_in_it(workspace):
    (workspace.outside / "lock").touch()
    text = (
        "import os\nfor name in ('labels.txt', 'lock', 'new'): open(os.environ['OUTSIDE'] + '/' + name, 'a+').seek(0)\n"
    )
    done = workspace.run(text)
    assert done.returncode == 0, done.stderr
    assert [read["path"] for read in workspace.lines("read")] == [str(workspace.outside / "labels.txt")]


def test_a_name_of_the_commit_is_another_file_in_another_folder(workspace):
    (workspace.code / "labels.txt").write_text("of the commit")
    done = workspace.run(
        "import os\nopen('labels.txt').read()\nos.chdir(os.environ['OUTSIDE'])\nopen('labels.txt').read()\n"
    )
    assert done.returncode == 0, done.stderr
    assert [read["path"] for read in workspace.lines("read")] == [str(workspace.outside / "labels.txt")]


def test_files_of_the_commit_leave_room_for_others_and_files_beyond_it_are_said_to_be_unseen(workspace, monkeypatch):
    monkeypatch.setattr(file_reads, "MOST_SEEN", 3)
    watched = audit.ProgramAudit(str(workspace.reported), workspace.environ()).reads
    for number in range(10):
        watched.opened(str(workspace.code / f"{number}.png"), os.O_RDONLY)
    watched.opened(str(workspace.outside / "labels.txt"), os.O_RDONLY)
    assert (len(workspace.lines("read")), workspace.lines("unseen")) == (1, [])
    for number in range(10):
        watched.opened(str(workspace.outside / f"{number}.png"), os.O_CREAT | os.O_WRONLY)
    watched.opened(str(workspace.outside.parent / "more.txt"), os.O_RDONLY)
    watched.opened(str(workspace.outside.parent / "most.txt"), os.O_RDONLY)
    assert [each["why"] for each in workspace.lines("unseen")] == [
        "more than 3 files were opened outside of what is declared"
    ]


def test_what_earlier_runs_left_in_a_kept_home_is_reported_beyond_all_other_limits(workspace, monkeypatch):
    """By what it changed last: a driver knows when its run began."""
    home = workspace.outside / ".gangline" / "home" / "main" / "published"
    home.mkdir(parents=True)
    pictures = [workspace.outside / f"{number}.png" for number in range(10)]
    for path in (*pictures, home / "left.txt", home / "left.pyc"):
        path.write_text("left")
    plan = workspace.outside / "plan.json"
    time.sleep(0.02)
    plan.touch()
    (home / "fresh.pyc").write_text("of this gang")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(file_reads, "MOST_READS", 1)
    monkeypatch.setattr(file_reads, "MOST_SEEN", 3)
    watched = audit.ProgramAudit(str(workspace.reported), workspace.environ(GANGLINE_PLAN=str(plan)))
    for path in (*pictures, home / "fresh.pyc", home / "left.txt", home / "left.pyc"):
        watched.reads.opened(str(path), os.O_RDONLY)
    read = {each["path"]: each["ctime_ns"] for each in workspace.lines("read")}
    assert [Path(each).name for each in read] == ["0.png", "left.txt", "left.pyc"]
    assert read[str(home / "left.txt")] == (home / "left.txt").stat().st_ctime_ns


def test_an_audit_that_a_program_breaks_says_so(workspace):
    done = workspace.run("import os, os.path\nos.path.abspath = None\n" + READ * 2 + "print(labels)\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 1 2\n", "")
    assert "the audit of open failed: TypeError" in [each["why"] for each in workspace.lines("unseen")]


@pytest.mark.parametrize("path", ["'\\0'", "None", "object()", "1.5"])
def test_what_is_not_a_path_is_an_error_of_the_program_alone(workspace, path):
    done = workspace.run(f"try: open({path})\nexcept (TypeError, ValueError): print('refused')\n")
    assert (done.stdout, workspace.lines("unseen")) == ("refused\n", [])


def test_a_report_that_is_full_says_so_once_in_each_process_and_grows_no_more(workspace):
    line = json.dumps({"event": "started", "program": "x" * 900}) + "\n"
    workspace.reported.write_text(line * (report_file.MOST_BYTES // len(line)))
    done = workspace.run(
        READ + "import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, '-c', 'pass'])\n"
    )
    assert done.returncode == 0, done.stderr
    assert 1 <= len(workspace.lines("unseen")) <= 3
    assert workspace.reported.stat().st_size <= report_file.FULL_BYTES


def test_modules_are_counted_by_origin_and_packages_have_the_version_that_was_imported(workspace):
    import yaml

    (workspace.outside / "stray.py").write_text("")
    (workspace.code / "own.py").write_text("")
    workspace.run("import sys, os, own, yaml; sys.path.append(os.environ['OUTSIDE']); import stray\n")
    (reported,) = workspace.lines("ran")
    assert reported["packages"]["pyyaml"] == yaml.__version__
    assert reported["modules"]["code"] == 2
    assert reported["elsewhere"] == [["stray", str(workspace.outside / "stray.py")]]
    assert reported["last"] is True
    assert workspace.lines("python")[0]["version"] == ".".join(map(str, sys.version_info[:3]))


def test_modules_that_torch_compiled_in_this_run_are_distinguished_those_of_before_are_from_elsewhere(workspace):
    plan, cache = workspace.outside / "plan.json", workspace.outside / "torchinductor_x"
    cache.mkdir()
    (cache / "older.py").write_text("")
    time.sleep(0.02)
    plan.write_text("{}")
    time.sleep(0.02)
    own = {
        "TMPDIR": str(workspace.outside),
        "GANGLINE_PLAN": str(plan),
        "TRITON_CACHE_DIR": str(workspace.outside / "triton"),
    }
    workspace.run(
        "import os, sys; out = os.environ['OUTSIDE']; os.mkdir(out + '/triton')\n"
        "for place, name in (('torchinductor_x', 'kernel'), ('triton', 'launcher'), ('', 'fetched')):\n"
        "    open(f'{out}/{place}/{name}.py', 'w').close(); sys.path.append(f'{out}/{place}')\n"
        "import kernel, launcher, fetched, older\n",
        **own,
    )
    (reported,) = workspace.lines("ran")
    assert reported["modules"]["compiled"] == 2
    assert sorted(name for name, _ in reported["elsewhere"]) == ["fetched", "older"]


TEMPLATES = """\
import os, sys, tempfile, types
torch = sys.modules["torch.distributed.nn.jit.instantiator"] = types.ModuleType("torch.distributed.nn.jit.instantiator")
torch.folder = tempfile.TemporaryDirectory(dir=os.environ["TMPDIR"])
torch.INSTANTIATED_TEMPLATE_DIR_PATH = torch.folder.name
other = tempfile.TemporaryDirectory(dir=os.environ["TMPDIR"])
for folder, name in ((torch.folder, "_remote_module_non_scriptable"), (other, "fetched")):
    sys.path.append(folder.name)
    open(os.path.join(folder.name, name + ".py"), "w").close()
import _remote_module_non_scriptable, fetched
"""
"""What `import torch.distributed.nn` does in torch 2.9, and what a program may do."""


def test_modules_that_torch_writes_from_its_templates_are_compiled_and_others_of_a_temporary_folder_are_not(workspace):
    assert workspace.run(TEMPLATES, TMPDIR=str(workspace.outside)).returncode == 0
    (reported,) = workspace.lines("ran")
    assert reported["modules"]["compiled"] == 1
    assert [name for name, _ in reported["elsewhere"]] == ["fetched"]
    assert reported["last"] is True, "though the folders are gone by then"


def test_children_report_next_to_their_parent_however_they_begin(workspace):
    text = (
        "import multiprocessing, os\ndef read(name): open(os.environ['OUTSIDE'] + '/' + name).read()\n"
        "if __name__ == '__main__':\n  for how in ('fork', 'spawn'):\n"
        "    one = multiprocessing.get_context(how).Process(target=read, args=(how + '.txt',))\n"
        "    one.start(); one.join()\n"
    )
    for how in ("fork", "spawn"):
        (workspace.outside / f"{how}.txt").write_text("1")
    done = workspace.run(text)
    assert done.returncode == 0, done.stderr
    assert {Path(each["path"]).name for each in workspace.lines("read")} == {"fork.txt", "spawn.txt"}


def test_a_killed_program_leaves_what_it_reported_before(workspace):
    (workspace.code / "program.py").write_text(
        READ + "import sys, time\nwhile True: sys.audit('step'); time.sleep(0.05)\n"
    )
    program = subprocess.Popen([sys.executable, "program.py"], cwd=workspace.code, env=workspace.environ())
    patience = time.monotonic() + 30
    while not workspace.lines("ran") and time.monotonic() < patience:
        time.sleep(0.1)
    program.send_signal(signal.SIGKILL)
    program.wait()
    assert len(workspace.lines("read")) == 1
    assert workspace.lines("ran")[-1]["last"] is False


@pytest.mark.parametrize("flag", ["-I", "-S", "-E"])
def test_a_python_that_reads_no_path_runs_and_reports_nothing(workspace, flag):
    assert workspace.run("print(1)\n", flag).stdout == "1\n"
    assert not workspace.reported.exists()


def test_a_sitecustomize_of_its_own_runs_as_ever_and_the_startup_folder_is_on_no_path(workspace):
    (workspace.code / "sitecustomize.py").write_text("import builtins; builtins.ours = 7\n")
    done = workspace.run("import sys, sitecustomize; print(ours, sitecustomize.__file__, *sys.path, sep='\\n')\n")
    first, second, *path = done.stdout.splitlines()
    assert (first, second) == ("7", str(workspace.code / "sitecustomize.py"))
    assert str(STARTUP) not in path
    assert path[:2] == [str(workspace.code)] * 2


@pytest.mark.parametrize("reported", ["/proc/no/such", "/dev/full", "relative"])
def test_a_report_that_cannot_be_written_breaks_no_program(workspace, reported):
    done = workspace.run(READ + "print(labels)\n", GANGLINE_RAN=reported)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 1 2\n", "")


def test_code_of_the_commit_comes_before_packages_and_before_finders_of_editable_installs(workspace):
    (workspace.code / "src").mkdir()
    (workspace.code / "src" / "pkg.py").write_text("where = 'commit'\n")
    (workspace.outside / "pkg.py").write_text("where = 'work tree'\n")
    (workspace.code / "sitecustomize.py").write_text("")
    finder = (
        "import importlib.util, os, sys\nclass _EditableFinder:\n  @classmethod\n  def find_spec(cls, name, *_):\n"
        "    if name == 'pkg': return importlib.util.spec_from_file_location(name, os.environ['OUTSIDE'] + '/pkg.py')\n"
        "sys.meta_path.insert(0, _EditableFinder)\n"
    )
    text = (
        f"import runpy; {READ}\nfrom gangline_startup import _code_first\n_code_first()\nimport pkg; print(pkg.where)\n"
    )
    (workspace.code / "gangline_startup.py").write_text(finder + (STARTUP / "sitecustomize.py").read_text())
    assert workspace.run(text, path=("src",)).stdout == "commit\n"
    assert workspace.run("import pkg; print(pkg.where)\n", path=("src",)).stdout == "commit\n"


def test_a_distribution_is_found_by_name_or_by_the_files_it_lists(tmp_path):
    for name, files in (("Demo_Thing-1.2", "demo/__init__.py,,\n"), ("spaced-3", "space/one/__init__.py,,\n")):
        folder = tmp_path / f"{name}.dist-info"
        folder.mkdir()
        (folder / "RECORD").write_text(files)
    root = f"{tmp_path}/"
    imported = {
        "demo": f"{root}demo/__init__.py",
        "space/one": f"{root}space/one/__init__.py",
        "lone": f"{root}lone.py",
    }
    assert audit.versions(imported, [root]) == {
        "demo": ("demo-thing", "1.2"),
        "space/one": ("spaced", "3"),
        "lone": None,
    }

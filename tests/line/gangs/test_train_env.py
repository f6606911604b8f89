"""Variables of the line in what runs its code, secrets among them: who gets them, and where they are not."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest
from tests.line import repositories
from tests.line.records import record as make_record

from gangline.errors import ConfigError, IntegrityError, TrainingError
from gangline.launch.sandbox.environment import MissedVariables, missed_variables
from gangline.line.gangs import podsets
from gangline.line.gangs.gang_secrets import left_out_variables, refused_references, secret_names
from gangline.line.gangs.launchers import gangs_root, secret_reader
from gangline.line.request.trust import rights_of
from gangline.registry.run_artifacts import list_artifacts
from gangline.report.run.terminal import page
from gangline.spec.config.load import load_line_text
from gangline.spec.config.problems import FileError
from gangline.spec.config.site import SecretsTable, Site
from gangline.spec.plan import Plan
from gangline.spec.run_flags import stage
from gangline.storage.objects import code_layer
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.code_layer import LayerFile
from gangline.storage.objects.protocol import list_all

VALUE = "s3cr3t-of-the-hub-0123456789"
ENV = '[train.env]\nHUB_TOKEN = "secret:env:DEMO_TOKEN"\nPLAIN = "as it is"\n'
LOOKS = f"""\
import glob, os
from hashlib import sha256
from gangline.train import Program
with Program(steps=4) as program:
    token = os.environ["HUB_TOKEN"]
    assert sha256(token.encode()).hexdigest() == "{sha256(VALUE.encode()).hexdigest()}"
    assert os.environ["PLAIN"] == "as it is"
    shown = 0
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            shown += token.encode() in open(path, "rb").read()
        except OSError:
            pass
    program.report(shown=float(shown))
"""
FAILS = """\
import os
from gangline.train import Program
with Program(steps=4) as program:
    raise ValueError("the hub does not take " + os.environ["HUB_TOKEN"])
"""


@pytest.fixture
def keeper(workspace):
    """A workspace whose site lets lines name one secret."""
    return replace(
        workspace, site=replace(workspace.site, secrets=SecretsTable(train_env=("env:DEMO_TOKEN",))),
        environ=workspace.environ | {"DEMO_TOKEN": VALUE, "HF_HOME": "/cache", "DEMO": "1"},
    )  # fmt: skip


def commit(workspace, text, tables=ENV):
    return repositories.commit(workspace.repo, {"answer.py": text, "line.toml": repositories.LINE + tables})


def holding(folder):
    """Files below `folder` that hold the secret."""
    return [path for path in folder.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]


def test_a_secret_is_a_variable_of_the_ranks_and_in_no_file_argument_or_record(keeper, tmp_path):
    commit(keeper, LOOKS)
    record = keeper.run()
    assert record.metrics["shown"].value == 0.0
    assert holding(tmp_path) == []
    assert len(list(gangs_root(keeper.repo).iterdir())) == 1


def test_what_a_rank_says_at_its_end_is_carried_on_without_secrets(keeper):
    commit(keeper, FAILS)
    with pytest.raises(TrainingError, match=r"the hub does not take \*\*\*"):
        keeper.run()
    (record,) = keeper.records()
    assert VALUE.encode() not in record.to_json()
    stored = {entry.key: keeper.store.get(entry.key).data for entry in list_all(keeper.store, "runs/")}
    assert [key for key, data in stored.items() if VALUE.encode() in data] == []
    assert any(key.endswith("logs/0.log") and b"***" in data for key, data in stored.items())
    (gang,) = gangs_root(keeper.repo).iterdir()
    assert holding(gang) == []
    (log,) = gang.rglob("logs/0.log")
    assert "***" in log.read_text()


@pytest.mark.parametrize(
    ("allowed", "environ", "says"),
    [
        ((), {"DEMO_TOKEN": VALUE}, r"train.env.HUB_TOKEN: wanted a secret that this site allows in lines"),
        (("env:OTHER_*", "file:*"), {"DEMO_TOKEN": VALUE}, r"found secret:env:DEMO_TOKEN; in site.toml, \[secrets\]"),
        (("env:DEMO_*",), {}, r"train.env.HUB_TOKEN: secret:env:DEMO_TOKEN: wanted a secret, found nothing"),
    ],
    ids=["nothing allowed", "others allowed", "missing"],
)
def test_a_secret_that_the_site_does_not_allow_or_have_starts_nothing(workspace, allowed, environ, says):
    commit(workspace, LOOKS)
    there = replace(workspace, site=Site(secrets=SecretsTable(train_env=allowed)), environ=workspace.environ | environ)
    with pytest.raises(ConfigError, match=says) as refused:
        there.run()
    assert VALUE not in str(refused.value)
    assert not gangs_root(workspace.repo).exists()
    (record,) = there.records()
    assert stage(record, "plan").state == "failed"


def test_a_fork_gets_no_secret_whatever_its_line_names(keeper):
    commit(keeper, LOOKS)
    record = keeper.run()
    forked = replace(record, commit=replace(record.commit, trust="fork"))
    line = load_line_text(repositories.LINE + ENV, file="line.toml")
    podset = podsets.make_podset(
        keeper_plan(keeper, record), record=forked, line=line, site=keeper.site, store=keeper.store
    )
    assert podset.secrets == ("checkpoint-key",)
    assert podset.env["PLAIN"] == "as it is"
    assert "HUB_TOKEN" not in podset.env
    assert left_out_variables(forked, line.train.env) == "HUB_TOKEN not set: commits of forks get no secrets"
    read = secret_reader(keeper.store, keeper.site, keeper.environ, rights_of(forked))
    with pytest.raises(IntegrityError, match="HUB_TOKEN, which its run does not name"):
        read("env.HUB_TOKEN")
    own = secret_reader(keeper.store, keeper.site, keeper.environ, rights_of(record))
    assert own("env.HUB_TOKEN") == VALUE.encode()


def test_a_gang_asks_for_no_secret_that_its_run_does_not_name(keeper):
    commit(keeper, LOOKS)
    read = secret_reader(keeper.store, keeper.site, keeper.environ, rights_of(keeper.run()))
    with pytest.raises(IntegrityError, match="DEMO_TOKEN, which its run does not name"):
        read("env.DEMO_TOKEN")


def test_names_of_a_podset_are_of_own_commits():
    own = make_record()
    assert secret_names(own, {"A": "secret:env:B", "C": "d"}) == ("env.A",)
    assert secret_names(replace(own, commit=replace(own.commit, trust="fork")), {"A": "secret:env:B"}) == ()


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("secret:k8s:hub/token", "wanted a secret that the driver reads"),
        ("secret:file:keys/hub", "wanted an absolute path without .."),
        ("secret:file:/run/keys/../../etc/shadow", "wanted an absolute path without .."),
        ("secret:DEMO_TOKEN", "wanted a reference to a secret, found another text that begins so"),
    ],
)
def test_a_reference_that_the_driver_cannot_read_is_refused(reference, says):
    with pytest.raises(FileError) as refused:
        load_line_text(f'{repositories.LINE}[train.env]\nHUB_TOKEN = "{reference}"\n', file="line.toml")
    assert says in str(refused.value)


READS = LOOKS + "home = os.environ.get('HF_HOME')\n"


def test_variables_that_the_code_reads_and_does_not_get_are_reported_and_the_others_are_in_show(keeper):
    keeper.environ["PIP_CERT"] = "/etc/ssl/cert.pem"
    commit(keeper, READS)
    record = keeper.run()
    said = [event.text for event in record.events if event.kind == "environment"]
    assert said == [
        "not passed on to the program: HF_HOME; set them by [train.env], secrets as secret:env:NAME",
        "not passed on, and named by no code of the commit: PIP_CERT",
    ]
    assert [text for text in keeper.seen.notes if text.startswith("not passed on")] == said[:1]
    assert [line for line in page(record).splitlines() if "PIP_CERT" in line] == [f"variables {said[1]}"]


def test_variables_that_no_code_reads_are_not_reported(keeper):
    commit(keeper, LOOKS)
    keeper.run()
    assert [text for text in keeper.seen.notes if text.startswith("not passed on")] == []


def test_variables_that_an_earlier_run_named_are_reported_again_only_where_others_are_missed(keeper):
    def reported():
        return [text for text in keeper.seen.notes if text.startswith("not passed on")]

    commit(keeper, READS)
    keeper.run()
    assert len(reported()) == 1
    commit(keeper, READS + "# more\n")
    record = keeper.run()
    assert reported() == []
    assert [event.kind for event in record.events].count("environment") == 1
    keeper.environ["WANDB_API_KEY"] = "x"
    commit(keeper, READS + "# WANDB_API_KEY\n")
    keeper.run()
    (said,) = reported()
    assert "HF_HOME, WANDB_API_KEY; set them" in said


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("import wandb\n", ("WANDB_API_KEY", "https_proxy")),
        ("from transformers import Trainer\n", ("https_proxy",)),
        ("x = os.environ['PIP_CERT']\n", ("PIP_CERT",)),
        ("import math  # wandbox\n", ()),
    ],
)
def test_what_the_line_sets_or_the_sandbox_passes_on_is_not_missed(source, read):
    names = ("WANDB_API_KEY", "HF_TOKEN", "https_proxy", "PIP_CERT", "PATH", "CUDA_HOME", "EDITOR")
    code = code_layer.pack([LayerFile("train.py", source.encode())])
    missed = missed_variables(dict.fromkeys(names, "x"), ["HF_TOKEN"], code)
    others = tuple(name for name in ("PIP_CERT", "WANDB_API_KEY", "https_proxy") if name not in read)
    assert missed == MissedVariables(read, others)


def test_ranks_of_a_program_share_the_cores_and_the_line_wins(workspace):
    shows = "from gangline.train import Program\nimport os\nwith Program() as program:\n"
    shows += "    program.report(threads=float(os.environ['OMP_NUM_THREADS']))\n"
    commit(workspace, shows, "")
    record = workspace.run()
    assert record.metrics["threads"].value == 2.0  # the inventory of these tests has two cores, the line one rank
    assert stage(record, "submit").message.endswith("1 process on this machine, 2 threads a rank")
    commit(workspace, shows + "# one\n", '[train.env]\nOMP_NUM_THREADS = "1"\n')
    assert workspace.run().metrics["threads"].value == 1.0


def test_a_task_has_one_thread_a_rank_at_any_size(workspace):
    commit(workspace, LOOKS, "")
    line = load_line_text(repositories.LINE, file="line.toml")
    task = replace(line, project=replace(line.project, task="model:Demo", command=None))
    assert podsets.threads_of(make_record(), task, workspace.site, workspace.store) == {}


def keeper_plan(workspace, record):
    return Plan.from_json(get_blob(workspace.store, record.plan.key))


def test_who_only_asks_for_a_plan_is_shown_what_would_refuse_the_run(keeper):
    env = {"HUB_TOKEN": "secret:env:DEMO_TOKEN", "PLAIN": "x"}
    assert refused_references(env, keeper.site, keeper.environ) == ""
    assert "train.env.HUB_TOKEN: secret:env:DEMO_TOKEN: wanted a secret" in refused_references(env, keeper.site, {})
    assert "wanted a secret that this site allows in lines" in refused_references(env, Site(), keeper.environ)


TELLS = """\
import json, os, pathlib, subprocess
names = ("GANGLINE_RUN", "GANGLINE_COMMIT", "GANGLINE_BRANCH", "GANGLINE_DIRTY")
git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True).returncode
pathlib.Path("told.json").write_text(json.dumps({"git": git == 0, **{name: os.environ.get(name) for name in names}}))
"""


@pytest.mark.parametrize("dirty", [False, True])
def test_a_program_learns_its_run_commit_and_branch_where_git_cannot_be_asked(workspace, dirty):
    line = repositories.LINE.replace("[train]", 'outputs = ["told.json"]\n[train]')
    repositories.git(workspace.repo, "checkout", "--quiet", "-b", "feature/ü#1")
    sha = repositories.commit(workspace.repo, {"answer.py": TELLS + repositories.PROGRAM, "line.toml": line})
    if dirty:
        (workspace.repo / "new.txt").write_text("x")
    record = workspace.run(until="train")
    (found,) = [each for each in list_artifacts(workspace.store, record) if each.path == "told.json"]
    assert json.loads(workspace.store.get(found.key).data) == {
        "git": False, "GANGLINE_RUN": record.run.id, "GANGLINE_COMMIT": sha, "GANGLINE_BRANCH": "feature/ü#1",
        "GANGLINE_DIRTY": "1" if dirty else None,
    }  # fmt: skip

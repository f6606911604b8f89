"""The memory run of a plan's finalists: by a real child process, never in the way of a plan."""

from dataclasses import replace

import pytest
from tests.line.stages.test_model_inspection import model_of, task_repository
from tests.planner.cases import SITE, cpu, line

from gangline.launch.sandbox.module_runner import ModuleResult
from gangline.line.gangs.sandbox import local_runner
from gangline.line.stages.memory_run import ORIGIN, run_memory_check, with_forecasts_of
from gangline.planner.choice import choose_plan
from gangline.planner.plans import make_plan
from gangline.spec.config.site import Site
from gangline.spec.data_source import DataSource
from gangline.spec.plan import ProgramSpec
from gangline.spec.profile import ModelProfile

TASK = """\
import torch
from gangline.train import Loss
class Tiny:
    def build_model(self, options):
        return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    def example(self, options):
        return {"input": torch.zeros(64), "wanted": torch.zeros(8)}
    def build_data(self, split, options):
        raise NotImplementedError
    def loss(self, outputs, batch):
        return Loss(total=((outputs - batch["wanted"]) ** 2).sum(), weight=len(outputs))
"""
STUBBORN = TASK.replace("return Loss(", "float(outputs.sum()); return Loss(")
PARAMETERS = 64 * 64 + 64 + 64 * 8 + 8


@pytest.fixture
def asked(tmp_path):
    """Function of a task's source: what `weigh` wants first."""

    def get(source=TASK, room=8e9):
        model, inventory = model_of(task_repository(tmp_path / "repo", source)), cpu(2, room)
        choice = choose_plan(line(), SITE, inventory, ModelProfile(parameters=PARAMETERS))
        plan = make_plan(line(), choice, run="demo-1", run_prefix="runs/demo", data=DataSource())
        plan = replace(plan, program=ProgramSpec(task="model:Tiny"))
        runner = local_runner(tmp_path / "repo", site=Site(), environ={"HOME": str(tmp_path)})
        return {
            "model": model, "choice": choice, "plan": plan, "site": SITE, "inventory": inventory, "notify": print,
            "runner": runner,
        }  # fmt: skip

    return get


def test_finalists_have_the_peaks_that_were_followed(asked):
    given = asked()
    weighed = run_memory_check(**given, always=True)
    peaks = {each.name: each.forecast for each in weighed.choice.candidates if each.forecast.memory_origin == ORIGIN}
    assert peaks.keys() == {"ddp-2", "fsdp-2"}
    assert peaks["ddp-2"].memory_bytes == weighed.choice.forecast.memory_bytes
    assert 16 * PARAMETERS <= peaks["ddp-2"].memory_bytes <= 24 * PARAMETERS
    assert peaks["fsdp-2"].memory_bytes < peaks["ddp-2"].memory_bytes
    assert [note.split(":")[0] for note in weighed.notes] == ["memory run of ddp-2", "memory run of fsdp-2"]
    assert with_forecasts_of(given["plan"], weighed.choice).forecast == weighed.choice.forecast


@pytest.mark.slow
def test_a_model_that_cannot_be_followed_leaves_the_formula_and_says_why(asked):
    given = asked(STUBBORN)
    weighed = run_memory_check(**given, always=True)
    assert weighed.choice == given["choice"]
    assert all("not known: DataDependentOutputException" in note for note in weighed.notes), weighed.notes


def test_gang_of_two_kinds_of_gpu_is_not_followed_and_that_is_said(asked):
    given = asked()
    unlike = replace(given["choice"], shares=(12, 4), finalists=())
    weighed = run_memory_check(**given | {"choice": unlike}, always=True)
    assert weighed.choice == unlike
    assert weighed.notes == ("memory of a gang of two kinds of GPU is not followed: it is that of the formula",)


def test_no_one_waits_for_it_longer_than_was_said(asked):
    given = asked()
    weighed = run_memory_check(**given, always=True, seconds=0.01)
    assert weighed.choice == given["choice"]
    assert weighed.notes[0] == "memory run of ddp-2: not known: it took over 0 s"


class Says:
    def __init__(self, stdout):
        self.stdout, self.job = stdout, None

    def run(self, job):
        self.job = job
        return ModuleResult(exit_code=0, stdout=self.stdout, stderr=b"")


@pytest.mark.parametrize("line", [b"x}", b"[}", b'{"peak_bytes": "much"}', b'{"peak_bytes": {}}', b'{"other": 1}'])
def test_what_a_model_says_of_itself_never_stops_a_plan(asked, line):
    given = asked() | {"runner": Says(b"\n".join([line] * 5))}
    weighed = run_memory_check(**given, always=True)
    assert weighed.choice == given["choice"]
    assert all("not known: wanted a result of the child process, found" in note for note in weighed.notes)


def test_the_variables_of_the_line_are_there_but_no_secret(asked):
    given, runner = asked(), Says(b"")
    model = given["model"]
    table = replace(model.line.train, env={"WIDTH": "3", "TOKEN": "secret:env:TOKEN"})
    run_memory_check(
        **given | {"runner": runner, "model": replace(model, line=replace(model.line, train=table))}, always=True
    )
    assert runner.job.env == {"WIDTH": "3"}


def test_unasked_it_follows_only_what_is_tight(asked, monkeypatch):
    from gangline.line.stages import memory_run

    monkeypatch.setattr(
        memory_run, "_trace", lambda model, plans, *_: [memory_run._Peak(peak_bytes=10**9)] * len(plans)
    )
    assert run_memory_check(**asked(), always=False).notes == ()
    given = asked()
    need = given["choice"].forecast.memory_bytes
    reserve = 200e6
    given["inventory"] = cpu(2, 2 * (reserve + 1.1 * need / 0.8))
    [first, *_] = run_memory_check(**given, always=False).notes
    assert first.endswith("expect it to run out of memory")

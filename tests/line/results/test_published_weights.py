"""Metrics of the weights that are published, through the whole line: plain programs, transformers, lightning."""

import importlib.util

import pytest
from tests.line import repositories

from gangline.errors import GateError
from gangline.registry.versions import read_version
from gangline.spec.run_flags import stage

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

GATE = '[[gate.quality]]\nmetric = "{metric}"\nbetter = "lower"\nlimit = {limit}\n'
BEST_AND_LAST = """\
import json, os, pathlib
from gangline.train import Program
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
with Program() as program:
    for step, loss in enumerate((0.9, 0.1, 0.8, 0.7), 1):
        program.step(loss=loss)
        (out / "last.pt").write_bytes(b"weights of step %d" % step)
        program.save({"last.pt": out / "last.pt"})
        if step == 2:
            (out / "best.pt").write_bytes((out / "last.pt").read_bytes())
            REPORT_BEST
    REPORT_LAST
"""
SAYS_BEST = 'program.report(eval_loss=loss, weights="out/best.pt")'
SAYS_LAST = 'program.report(eval_loss=loss, weights="out/last.pt")'


def run(workspace, script, files, *, keys="", metric="eval_loss", limit=0.5):
    line = repositories.LINE.replace("[train]", f'outputs = ["out/**"]\n{keys}[train]', 1)
    line += f"[publish]\nfiles = {files}\n{GATE.format(metric=metric, limit=limit)}"
    repositories.commit(workspace.repo, {"answer.py": script, "line.toml": line})
    return workspace.run()


def program(best="pass", last="pass"):
    return BEST_AND_LAST.replace("REPORT_BEST", best).replace("REPORT_LAST", last)


def weights_gate(record):
    return next(gate for gate in record.gates if gate.name == "weights")


def test_the_best_weights_are_judged_by_what_was_measured_on_them_though_later_ones_were_reported(workspace):
    record = run(workspace, program(SAYS_BEST, SAYS_LAST), '["out/best.pt"]')
    assert (record.metrics["eval_loss"].value, record.metrics["eval_loss"].step) == (0.1, 2)
    assert weights_gate(record).verdict == "yes"
    assert "eval_loss was measured on best.pt (sha256 " in weights_gate(record).reason
    version = read_version(workspace.store, "cheap", 1)
    judged = weights_gate(record).evidence["metrics"]["eval_loss"]["weights"]
    (published,) = [file.sha256 for file in version.files if file.path == "best.pt"]
    assert judged["out/best.pt"]["sha256"] == published


def test_last_weights_are_not_published_by_the_metric_of_the_best(workspace):
    with pytest.raises(
        GateError, match=r"weights: eval_loss was measured on out/best.pt .*, not on last.pt .*, which publish takes"
    ):
        run(workspace, program(SAYS_BEST), '["out/last.pt"]')
    assert read_version(workspace.store, "cheap", 1) is None


def test_a_file_that_is_written_again_after_it_was_measured_is_another(workspace):
    again = '(out / "best.pt").write_bytes(b"averaged")'
    with pytest.raises(GateError, match=r"weights: eval_loss was measured on out/best.pt"):
        run(workspace, program(SAYS_BEST, again), '["out/best.pt"]')


def test_where_the_program_names_no_weights_the_gate_is_unknown_and_nothing_is_published(workspace):
    record = run(workspace, program(last="program.report(eval_loss=0.1)"), '["out/last.pt"]')
    assert record.run.verdict == "passed"
    assert weights_gate(record).verdict == "unknown"
    assert 'program.report(..., weights="FILE")' in weights_gate(record).reason
    assert stage(record, "publish").state == "skipped"
    assert "gate weights is unknown: the program does not say" in stage(record, "publish").message


def test_a_name_in_the_last_save_is_a_file_of_weights(workspace):
    record = run(workspace, program(last='program.report(eval_loss=0.2, weights="last.pt")'), '["last.pt"]')
    assert weights_gate(record).verdict == "yes", weights_gate(record)
    assert read_version(workspace.store, "cheap", 1).checkpoint.endswith("/program/step-00000004")


@pytest.mark.parametrize(("stated", "verdict"), [('["out/*.pt"]', "yes"), ('["out/other.pt"]', "unknown")])
def test_a_command_says_which_outputs_its_file_of_metrics_is_of(workspace, stated, verdict):
    script = 'import pathlib\npathlib.Path("out").mkdir()\npathlib.Path("out/a.pt").write_bytes(b"a")\n'
    script += 'pathlib.Path("m.json").write_text(\'{"eval_loss": 0.1}\')\n'
    keys = f'metrics = "m.json"\nmetrics_of = {stated}\n'
    record = run(workspace, script, '["out/*.pt"]', keys=keys)
    assert weights_gate(record).verdict == verdict, weights_gate(record)
    assert (read_version(workspace.store, "cheap", 1) is None) is (verdict == "unknown")
    if verdict == "unknown":
        said = "project.metrics_of says that eval_loss is of out/other.pt, and publish takes a.pt"
        assert weights_gate(record).reason.startswith(said), weights_gate(record)


TRANSFORMERS = """\
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from gangline.integrations.transformers import GanglineCallback

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.value = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, labels):
        return {"loss": ((self.value - x) ** 2).mean()}

rows = [{"x": torch.ones(1), "labels": torch.ones(1)}] * 8

class Averaging(Trainer):
    def evaluate(self, *arguments, **more):
        kept = self.model.value.detach().clone()
        with torch.no_grad():
            self.model.value.lerp_(torch.ones(1), 0.5)
        try:
            return super().evaluate(*arguments, **more)
        finally:
            with torch.no_grad():
                self.model.value.copy_(kept)

class Worsen(TrainerCallback):
    def on_step_begin(self, args, state, control, model=None, **_):
        with torch.no_grad():
            model.value.fill_([3.0, 0.9, 3.0, 5.0][state.global_step])

with GanglineCallback() as gang:
    args = TrainingArguments(
        output_dir="work", max_steps=gang.steps, per_device_train_batch_size=2, learning_rate=1e-4, use_cpu=True,
        report_to="none", disable_tqdm=True, save_strategy="steps", save_steps=1, eval_strategy="steps", eval_steps=1,
        load_best_model_at_end=True, metric_for_best_model="eval_loss", greater_is_better=False,
    )
    trainer = TRAINER(model=Net(), args=args, train_dataset=rows, eval_dataset=rows, callbacks=[Worsen(), gang])
    trainer.train(resume_from_checkpoint=gang.resume())
    trainer.save_model("out/best")
    import shutil, glob
    shutil.copytree("work/checkpoint-4", "out/last")
"""


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="gangline[transformers] is not installed")
def test_transformers_that_loads_its_best_checkpoint_is_judged_by_it(workspace):
    record = run(workspace, TRANSFORMERS.replace("TRAINER", "Trainer"), '["out/best/*"]')
    assert weights_gate(record).verdict == "yes", weights_gate(record)
    assert record.metrics["eval_loss"].value == pytest.approx(0.01, abs=0.01)
    assert record.metrics["eval_loss"].step == 2
    assert read_version(workspace.store, "cheap", 1) is not None


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="gangline[transformers] is not installed")
def test_transformers_that_publishes_its_last_checkpoint_is_judged_by_the_last(workspace):
    with pytest.raises(GateError, match=r"quality:eval_loss"):
        run(workspace, TRANSFORMERS.replace("TRAINER", "Trainer"), '["out/last/model.safetensors"]')
    record = workspace.records()[-1]
    assert weights_gate(record).verdict == "yes", weights_gate(record)
    assert record.metrics["eval_loss"].value > 10


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="gangline[transformers] is not installed")
def test_transformers_that_evaluates_an_average_and_saves_other_weights_is_unknown(workspace):
    record = run(workspace, TRANSFORMERS.replace("TRAINER", "Averaging"), '["out/best/*"]', limit=100)
    assert weights_gate(record).verdict == "unknown", weights_gate(record)
    assert read_version(workspace.store, "cheap", 1) is None


LIGHTNING = """\
import lightning, torch
from lightning.pytorch.callbacks import ModelCheckpoint
from gangline.integrations.lightning import GanglineCallback

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.value = torch.nn.Parameter(torch.zeros(1))

    def on_train_batch_start(self, batch, index):
        with torch.no_grad():
            self.value.fill_([3.0, 0.9, 3.0, 5.0][self.global_step])

    def training_step(self, batch, index):
        return ((self.value - batch) ** 2).mean()

    def validation_step(self, batch, index):
        self.log("val_loss", ((self.value - batch) ** 2).mean())

    def test_step(self, batch, index):
        self.log("test_loss", ((self.value - batch) ** 2).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)

loader = torch.utils.data.DataLoader(torch.ones(2, 1), batch_size=2)
with GanglineCallback() as gang:
    best = ModelCheckpoint(dirpath="out", filename="best", monitor="val_loss", mode="min")
    last = ModelCheckpoint(dirpath="out", filename="last")
    trainer = lightning.Trainer(
        max_steps=gang.steps, max_epochs=-1, callbacks=[best, last, gang], logger=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", num_sanity_val_steps=0, **gang.trainer_options(),
    )
    model = Net()
    trainer.fit(model, loader, loader, ckpt_path=gang.resume())
    TEST
"""
AVERAGES = """
class Average(lightning.Callback):
    def on_validation_start(self, trainer, model):
        self.kept = model.value.detach().clone()
        with torch.no_grad():
            model.value.lerp_(torch.ones(1), 0.5)

    def on_validation_end(self, trainer, model):
        with torch.no_grad():
            model.value.copy_(self.kept)

loader = """
NO_LIGHTNING = pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None, reason="gangline[lightning] is not installed"
)
OF_BEST = 'trainer.test(model, loader, ckpt_path="best", weights_only=False)'


@NO_LIGHTNING
@pytest.mark.parametrize(("metric", "test"), [("val_loss", "pass"), ("test_loss", OF_BEST)])
def test_lightning_that_publishes_its_best_checkpoint_is_judged_by_it(workspace, metric, test):
    record = run(workspace, LIGHTNING.replace("TEST", test), '["out/best.ckpt"]', metric=metric)
    assert weights_gate(record).verdict == "yes", weights_gate(record)
    assert record.metrics[metric].value == pytest.approx(0.01, abs=0.01)
    assert read_version(workspace.store, "cheap", 1) is not None


@NO_LIGHTNING
def test_lightning_that_validates_an_average_and_saves_other_weights_is_unknown(workspace):
    script = LIGHTNING.replace("TEST", "pass").replace("\nloader = ", AVERAGES).replace("[best,", "[Average(), best,")
    record = run(workspace, script, '["out/best.ckpt"]', metric="val_loss", limit=100)
    assert weights_gate(record).verdict == "unknown", weights_gate(record)
    assert read_version(workspace.store, "cheap", 1) is None


@NO_LIGHTNING
def test_lightning_that_tests_the_best_and_publishes_the_last_is_refused(workspace):
    with pytest.raises(GateError, match=r"weights: test_loss was measured on out/best.ckpt .*last.ckpt"):
        run(workspace, LIGHTNING.replace("TEST", OF_BEST), '["out/last.ckpt"]', metric="test_loss")

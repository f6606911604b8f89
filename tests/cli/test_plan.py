"""What `gangline plan` says about the plan it would run."""

import re
from dataclasses import replace
from types import SimpleNamespace

from tests.planner.cases import RATES, SITE, SMALL, TRACED, cpu, earlier, gpus, line
from tests.planner.transformers import H100, ONE, transformer

from gangline.cli.view.plan_page import plan_page
from gangline.line.gangs.runners import CodeIsolation
from gangline.planner.choice import choose_plan
from gangline.spec.config.line import ProjectTable
from gangline.spec.record import Gate

HERE = CodeIsolation(engine="bubblewrap", text="bubblewrap", gaps="")


def preview_of(*, profile=SMALL, rates=None, history=(), problems=(), sandbox=HERE, **train):
    asked = line(**train)
    choice = choose_plan(asked, SITE, cpu(2), profile, history, rates=rates)
    return SimpleNamespace(
        run="demo-1", choice=choice, inventory=cpu(2), profile=profile,
        request=SimpleNamespace(line=asked), environment="lock.txt: 1 package, cached", data="",
        budget=Gate(name="budget", verdict="yes", reason="no bound is set"),
        site=replace(SITE, plan=replace(SITE.plan, band=0.07)), problems=problems, sandbox=sandbox,
    )  # fmt: skip


def page(*, why=False, **more):
    return plan_page(preview_of(**more), why=why)


def test_a_pipeline_says_how_much_of_its_time_is_idle():
    assert "          pipeline 1f1b: 11 % of its time idle" in page(strategy="pp").splitlines()
    assert "idle" not in page(strategy="ddp")


def test_a_step_is_reported_by_its_largest_parts_and_how_far_to_trust_them():
    said = page(profile=TRACED, rates=RATES, strategy="ddp")
    assert re.search(
        r"step 2\d ms: compute 1\d ms, communication [0-9.]+ ms, .* · rates measured, not corrected by any", said
    )
    corrected = page(profile=TRACED, rates=RATES, strategy="ddp", history=[earlier(5.0)] * 3)
    assert "calibrated n=3, within 7.0 %" in corrected


def test_why_shows_every_term_with_its_origin():
    lines = page(profile=TRACED, rates=RATES, strategy="ddp", why=True, history=[earlier(5.0)]).splitlines()
    assert any(line.split() == ["compute", *line.split()[1:3], "calibrated", "n=1"] for line in lines)
    assert any(line.split()[:1] == ["data"] and line.endswith("default") for line in lines)
    assert any("on the wire" in line and "8.0 MB" in line for line in lines)
    assert any(line.split()[:2] == ["buckets", "1"] and "torch's own; " in line for line in lines)


def test_what_a_forecast_had_to_do_without_is_said():
    assert "note      earlier runs were not read: no route" in page(problems=("earlier runs were not read: no route",))
    assert "no step time: rates were not measured" in page(profile=TRACED, why=True)


def test_parts_of_a_step_that_take_no_time_are_left_out():
    said = page(profile=TRACED, rates=RATES, strategy="ddp")
    assert " 0 ms" not in next(each for each in said.splitlines() if each.startswith("          step "))


def test_a_plan_without_a_step_time_says_why():
    assert "          no step time: rates were not measured" in page(profile=TRACED).splitlines()


def test_no_line_of_the_page_is_wider_than_the_terminal():
    found = preview_of(profile=TRACED, rates=RATES)
    said = plan_page(found, why=True, width=80)
    assert max(map(len, said.splitlines())) <= 80
    below, whole = (each[each.index("\nchosen ") :] for each in (said, plan_page(found, why=True)))
    assert below.split() == whole.split(), "words are only moved"


def test_model_code_that_runs_in_a_pod_is_reported():
    pod = CodeIsolation(engine="pod", text="a pod of the cluster", gaps="")
    assert "model     looked at in a pod of the cluster" in page(sandbox=pod).splitlines()
    assert "looked at" not in page()
    assert "packages  lock.txt: 1 package, cached" in page().splitlines()


def test_the_page_is_printed(gangline, monkeypatch):
    monkeypatch.setattr("gangline.line.stages.preview.preview", lambda *_, **__: preview_of(strategy="ddp"))
    assert "chosen    " in gangline("plan").stdout


def test_a_program_is_shown_its_processes_and_no_table():
    found, project = preview_of(), ProjectTable(name="demo", command=("python", "x.py"))
    found.request.line = replace(line(batch=64), project=project)
    found.choice = choose_plan(found.request.line, SITE, cpu(2))
    said = plan_page(found, why=True)
    assert "plan      2 processes on CPU; the program decides how" in said.splitlines()
    assert not {"PLAN", "ddp", "fp32"} & set(said.replace("-", " ").split())


def test_on_gpus_the_bound_and_the_chance_of_an_interruption_are_reported():
    asked = line(batch=256)
    choice = choose_plan(asked, H100, gpus(8), transformer(**ONE, sequence=4096))
    found = preview_of()
    found.choice, found.request.line = choice, asked
    said = plan_page(found, why=False)
    assert re.search(r"no step under 2\.\d\d s on 8 GPUs \(compute\)", said)
    assert re.search(r"training .* on 8 GPUs · .* · P\(interrupt\) 0\.\d % \(llama3\)", said)
    assert re.search(r"\nsaves     file system: .* a save, every .* of the time lost", said)
    assert "no step under" not in page(profile=TRACED, rates=RATES)


def test_versions_of_data_sets_are_named_with_their_size():
    found = preview_of(strategy="ddp")
    assert "data  " not in plan_page(found, why=False)
    found.data = "wiki@3f2a91c4, 5 samples, 1.2 kB"
    assert "\ndata      wiki@3f2a91c4, 5 samples, 1.2 kB\n" in plan_page(found, why=False)

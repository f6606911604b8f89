"""Answers of the planner to all questions of the corpus, whole: `python -m tests.planner.corpus.answers FOLDER`.

One file a question: documents as `--json` prints them, plans as ranks read them, pages as people do. To see what a
change does to them write those of both trees, then `git diff --no-index ONE OTHER`. If the change is wanted, FOLDER has
the new `digests.json`.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.planner.corpus.questions import Question, questions

from gangline.cli.view.plan_page import hypothetical_page, plan_page
from gangline.errors import GanglineError
from gangline.line.gangs.stated_network import PlannedNetwork
from gangline.line.stages import planning
from gangline.line.stages.device_rates import KnownRates
from gangline.line.stages.hypothetical import plan_hypothetically
from gangline.line.stages.measured_history import MeasuredHistory
from gangline.line.stages.model_inspection import ModelInspection
from gangline.line.stages.optimizer_plan import with_matrix_work
from gangline.planner.certificate import pipeline_traffic, plan_certificate
from gangline.planner.choice import PlanChoice
from gangline.planner.formula.inputs import formula_profile
from gangline.planner.layouts.layout import program_decides
from gangline.planner.plans import make_plan, prove_plan, server_plan, worker_exchange, worker_plans
from gangline.planner.pool import gpu_table
from gangline.spec.codec import to_plain
from gangline.spec.data_source import DataSource
from gangline.spec.profile import ModelProfile

DIGESTS = Path(__file__).with_name("digests.json")
"""Digest of the answer to each question, as the planner gave it when this file was written."""
WIDTH = 100
"""Columns of the terminal that pages are also printed for."""


def answer(question: Question) -> str:
    """What the planner says, or why it refuses."""
    try:
        parts = dict(_hypothetical(question) if question.is_hypothetical else _planned(question))
    except GanglineError as error:
        return f"exit {error.exit_code}\n{error}\n"
    return "".join(f"== {name}\n{_text(part)}\n" for name, part in parts.items())


def _text(part: Any) -> str:
    return part if isinstance(part, str) else json.dumps(to_plain(part), indent=1, sort_keys=True, ensure_ascii=False)


def _planned(question: Question) -> Iterator[tuple[str, Any]]:
    """What the stage `plan` and `gangline plan` make of devices that are there."""
    line, profile = question.line, question.profile
    if line.plan.transformer is not None and (profile is None or not profile.traces):
        profile = formula_profile(line.plan.transformer)
    profile = with_matrix_work(line, profile)
    with patch.object(planning, "device_rates", lambda *_, **__: KnownRates(question.rates)):
        found = planning.make_choice(
            line, question.site, question.inventory, ModelInspection(question.inventory, profile),
            MeasuredHistory(tuple(question.history)), cache=Path("/nowhere"), visible_devices=None,
            notify=lambda _: None, fabric=question.fabric,
        )  # fmt: skip
    shown: Any = SimpleNamespace(
        request=SimpleNamespace(line=line), run="demo-1", choice=found.choice, inventory=found.inventory,
        profile=profile, budget=found.budget, site=found.site, sandbox=SimpleNamespace(engine="none"),
        problems=found.problems, environment="its own", data="",
    )  # fmt: skip
    yield "choice", found.choice
    yield "budget", found.budget
    yield "page", plan_page(shown, why=False)
    yield "why", plan_page(shown, why=True, width=WIDTH)
    if not program_decides(line):
        yield "terms", plan_page(shown, why=False, terms=found.choice.candidates[-1].name, width=WIDTH)
    yield from _gangs(question, found.choice, profile)
    if profile is not None and question.fabric is not None:
        yield from _network(question, found.choice, profile)


def _hypothetical(question: Question) -> Iterator[tuple[str, Any]]:
    """What `gangline plan --gpus` makes of the shape of a model."""
    network = None if question.fabric is None else PlannedNetwork(fabric=question.fabric, links="assumed")
    request: Any = SimpleNamespace(line=question.line)
    found = plan_hypothetically(request, site=question.site, inventory=question.inventory, network=network)
    for name in ("choice", "budget", "certificate"):
        yield name, getattr(found, name)
    yield "page", hypothetical_page(found, why=False)
    yield "why", hypothetical_page(found, why=True, width=WIDTH)
    yield "terms", hypothetical_page(found, why=False, terms=found.choice.candidates[-1].name, width=WIDTH)
    yield from _gangs(question, found.choice, found.profile)


def _gangs(question: Question, choice: PlanChoice, profile: ModelProfile | None) -> Iterator[tuple[str, Any]]:
    """Plans of the record, candidates and all; of other gangs without them."""
    plan = make_plan(question.line, choice, run="r", run_prefix="p", data=DataSource())
    yield "plan", plan
    yield "exchange", worker_exchange(plan)
    gangs = [server_plan(plan), *worker_plans(plan)] if plan.parameters else []
    if question.line.project.task is not None:
        gangs.append(prove_plan(plan, "auto", "c", 2, inventory=question.inventory.as_smallest, site=question.site,
                                profile=profile))  # fmt: skip
    yield "gangs", [replace(each, candidates=()) for each in gangs]


def _network(question: Question, choice: PlanChoice, profile: ModelProfile) -> Iterator[tuple[str, Any]]:
    """By what a placer orders servers, and what is certified of it."""
    assert question.fabric is not None, "asked of questions with a network"
    yield "traffic", pipeline_traffic(choice, profile, line=question.line)
    yield "certificate", plan_certificate(
        question.fabric, choice, profile, line=question.line, overlap=question.site.plan.overlap,
        gpu=gpu_table(question.site, choice.forecast.device_name),
    )  # fmt: skip


def digest_of(text: str) -> str:
    """Digest of an answer with numbers of 12 digits: libraries of other machines differ in the last ones of a float."""
    rounded = re.sub(r"-?\d+\.\d+(?:e[+-]?\d+)?", lambda found: f"{float(found[0]):.12g}", text)
    return sha256(rounded.encode()).hexdigest()[:16]


def write(folder: Path) -> None:
    """Write each answer into a file with the name of its question, and the digests of all."""
    folder.mkdir(parents=True, exist_ok=True)
    digests = {}
    for each in questions():
        digests[each.name] = digest_of(text := answer(each))
        (folder / f"{each.name}.txt").write_text(text, "utf-8")
    (folder / DIGESTS.name).write_text(json.dumps(digests, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))

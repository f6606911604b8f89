"""`gangline plan`: what a line would get here and why, launching nothing."""

import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.options import (
    HERE,
    CommitOption,
    FabricOption,
    JsonOption,
    PathArgument,
    RepoOption,
    SetOption,
    SiteOption,
    StrategyOption,
)
from gangline.cli.output import print_json, terminal_width
from gangline.cli.terminal import say, spinner
from gangline.cli.view.plan_table import candidate_table
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import GateError, UsageError, storage_errors
from gangline.fabric.inventory import Fabric
from gangline.line.gangs.stated_network import PlannedNetwork, planned_network, stated_network
from gangline.line.request.run_request import resolve_request
from gangline.line.request.targets import with_target
from gangline.planner.selection.choice import PlanChoice
from gangline.planner.shapes.hypothetical import GPUS_A_SERVER, hypothetical_inventory, with_network
from gangline.planner.shapes.shape import Shape
from gangline.report.facts import MARKS
from gangline.report.text import percent, step_time
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.forecast import Forecast
from gangline.spec.plan import Candidate
from gangline.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from gangline.line.stages.hypothetical import HypotheticalPlan
    from gangline.line.stages.preview import Preview


def command(
    path: PathArgument = HERE,
    *,
    commit: CommitOption = None,
    set_: SetOption = None,
    strategy: StrategyOption = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Where ranks run: local, kubernetes, kfp-local, kfp.", show_default="the site's"),
    ] = None,
    memory_run: Annotated[
        bool, typer.Option("--memory-run", help="Follow the memory of the best two plans, however much room they have.")
    ] = False,
    why: Annotated[bool, typer.Option("--why", help="All plans, and where each number comes from.")] = False,
    terms: Annotated[
        str | None, typer.Option("--terms", metavar="PLAN", help="Where each number of one plan comes from.")
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option("--gpus", metavar="[NAME:]N", help="For so many GPUs as [gpu.NAME] of site.toml, here or not."),
    ] = None,
    fabric: FabricOption = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="Longest training: 90m, 36h, 14d, or seconds.")
    ] = None,
    budget: Annotated[float | None, typer.Option("--budget", help="Most money, in the site's currency.")] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Only plans that start on servers free at this minute; exit 20 without any.")
    ] = False,
    measure_costs: Annotated[
        Path | None,
        typer.Option(
            "--measure-costs", metavar="FILE", help="Time updates of the matrix rule here; optimizer.cost reads FILE."
        ),
    ] = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Show the plans that were considered, the one that won, and a reason for every one that lost."""
    desk = open_workspace(repo / path, site, logs=False)
    stated = stated_network(desk.environ, fabric)
    network = None if stated is None else planned_network(stated, desk.store)
    where, devices = _devices(with_target(desk.site, target), gpus, network.fabric if network else None)
    question = PlanQuestion(
        desk=desk, site=where, devices=devices, network=network, commit=commit, strategy=strategy,
        overrides=(*(set_ or ()), *_bounds(deadline, budget)), memory_run=memory_run, now=now,
    )  # fmt: skip
    width = terminal_width() if sys.stdout.isatty() else None
    if (asked := None if measure_costs else question.hypothetical()) is not None:
        from gangline.cli.view.formula_page import hypothetical_page

        gate = asked.budget
        print_json(_hypothetical_document(asked)) if json else say(
            hypothetical_page(asked, why=why, terms=terms, width=width)
        )
    else:
        found = question.preview()
        if measure_costs is not None:
            _write_costs(found, measure_costs)
        gate = found.budget
        print_json(_document(found)) if json else say(_page(found, why=why, terms=terms, width=width))
    if gate.verdict == "no":
        raise typer.Exit(GateError.exit_code)


def _write_costs(found: "Preview", file: Path) -> None:
    from gangline.line.stages.matrix_costs import measured_cost_table

    with spinner("timing updates of each shape"):
        text = measured_cost_table(found.request.line, found.profile, found.inventory, found.choice.device)
    with storage_errors(file):
        file.write_text(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanQuestion:
    """What is to be planned, and for which devices."""

    desk: Workspace
    site: Site
    devices: Inventory | None
    """Asked for; None: those that are there."""
    network: PlannedNetwork | None
    commit: str | None
    strategy: str | None
    overrides: tuple[str, ...]
    memory_run: bool
    now: bool
    """Only on servers that are free."""

    def hypothetical(self) -> "HypotheticalPlan | None":
        """By formula, on devices that were asked for; None: the line does not give the shape of its model."""
        if self.devices is None:
            return None
        if self.now:
            raise UsageError("--now: wanted servers that are there, found --gpus; leave one of them out")
        request = resolve_request(self.desk.repo, commit=self.commit, overrides=self.overrides, strategy=self.strategy)
        if request.line.plan.transformer is None:
            return None
        from gangline.line.stages.hypothetical import plan_hypothetically

        return plan_hypothetically(request, site=self.site, inventory=self.devices, network=self.network)

    def preview(self) -> "Preview":
        """As a run would be planned."""
        from gangline.line.stages.preview import preview
        from gangline.line.stages.start_now import choice_now, free_servers

        if _asks_servers(self.site):
            from gangline.cli.log_setup import set_up_logs

            set_up_logs(self.desk.environ)
        with spinner("packing the code") as tell:

            def planned(devices: Inventory | None) -> "Preview":
                return preview(
                    self.desk.repo, site=self.site, environ=self.desk.environ, commit=self.commit,
                    overrides=self.overrides, strategy=self.strategy, memory_run=self.memory_run, notify=tell,
                    devices=devices,
                )  # fmt: skip

            found = planned(self.devices)
            if not self.now:
                return found
            free = free_servers(self.site, self.desk.environ, found.inventory)
            return replace(found, choice=choice_now(found, free, planned))


def _asks_servers(site: Site) -> bool:
    """Where a request may be tried again, which is logged; a plan on this machine from its own files logs nothing."""
    return site.launch.target != "local" or not site.store.url.startswith("file:")


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _bounds(deadline: str | None, budget: float | None) -> list[str]:
    """Overrides of the line's `[plan]`."""
    found = []
    if deadline is not None:
        found.append(f"plan.deadline_seconds={_seconds(deadline)}")
    if budget is not None:
        found.append(f"plan.budget_money={budget}")
    return found


def _seconds(text: str) -> float:
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        raise UsageError(f"--deadline: wanted a time as 90m, 36h, 14d or seconds, found {text!r}") from None


def _devices(site: Site, gpus: str | None, network: Fabric | None) -> tuple[Site, Inventory | None]:
    """The site with the links of `network`, and the devices that are asked for; None: those that are there."""
    where = site if network is None else with_network(site, network)
    if gpus is None:
        return where, None
    return where, hypothetical_inventory(where, gpus, gpus_a_server=network.rails if network else GPUS_A_SERVER)


_TOLD = 2
"""Plans whose numbers are told one by one: the best, and the one it was hardest to choose from."""


def _page(found: "Preview", *, why: bool, terms: str | None = None, width: int | None = None) -> str:
    choice = found.choice
    if choice.is_left_to_program:
        return _programs(found, width)
    table = [f"{found.run} · {_have(found)}", "", candidate_table(choice.candidates, width=width, every=why), ""]
    lines = [
        f"chosen    {choice.name}: {choice.reason}",
        f"          {_samples(choice.micro_batch)} a rank and pass · {choice.precision} on {choice.device.upper()}",
        f"budget    {MARKS[found.budget.verdict]} {found.budget.reason}",
    ]
    if choice.forecast.step_seconds is not None:
        lines.insert(-1, f"          {_forecast(choice.forecast, found.band)}")
    elif choice.forecast.missing:
        lines.insert(-1, f"          no step time: {choice.forecast.missing}")
    if bound := _bound(choice, found.request.line.train.global_batch):
        lines.insert(-1, f"          {bound}")
    if choice.forecast.bubble is not None:
        lines.insert(-1, f"          pipeline {choice.pp_schedule}: {choice.forecast.bubble:.0%} of its time idle")
    if other := _other_sizes(found):
        lines.append(f"elastic   {other}")
    lines += _optimizer(found, why=why)
    if found.sandbox.engine == "pod":
        lines.append(f"model     looked at in {found.sandbox.text}")
    lines.append(f"packages  {found.environment}")
    lines += [f"note      {trouble}" for trouble in found.problems]
    told = [choice.candidate(terms)] if terms else choice.candidates[:_TOLD] if why else ()
    lines += [line for each in told for line in _known(each, said=choice.forecast.missing)]
    return "\n".join([*table, *(part for line in lines for part in _wrapped(line, width))])


def _optimizer(found: "Preview", *, why: bool) -> list[str]:
    """Owners of matrix updates, and with `why` who updates each parameter; nothing of a line without matrix rule."""
    line, choice = found.request.line, found.choice
    if line.optimizer.get("rule") is None:
        return []
    from gangline.line.stages.optimizer_plan import optimizer_plans, routing
    from gangline.optim.plan.explain import explain_stages
    from gangline.optim.plan.routing import explain_routing

    routed = routing(line, found.profile)
    if not routed:
        return [f"optimizer {line.optimizer['rule']}: its matrices are not known before the run"]
    plans = optimizer_plans(
        line, found.profile, Shape(choice.strategy, choice.mesh), choice.device, pp_schedule=choice.pp_schedule
    )
    text = explain_stages(plans) if plans else "ranks plan the owners of their matrices, and tell their number"
    lines = text.splitlines() + (["", *explain_routing(routed).splitlines()] if why else [])
    return [f"{'' if number else 'optimizer':10}{line}".rstrip() for number, line in enumerate(lines)]


def _programs(found: "Preview", width: int | None) -> str:
    """Of a program that is left to itself: nothing to choose from, so no table."""
    choice = found.choice
    lines = [
        f"plan      {choice.name} on {choice.device.upper()}; {choice.reason}",
        f"          {_TO_A_SESSION}",
        *([f"          {_forecast(choice.forecast, found.band)}"] if choice.forecast.step_seconds is not None else []),
        f"budget    {MARKS[found.budget.verdict]} {found.budget.reason}",
        *([f"elastic   {other}"] if (other := _other_sizes(found)) else []),
        *(f"note      {trouble}" for trouble in found.problems),
    ]
    return "\n".join([f"{found.run} · {_have(found)}", "", *(part for line in lines for part in _wrapped(line, width))])


_TO_A_SESSION = "a Session in it takes copies of the model; train.strategy asks for another way"


def _wrapped(line: str, width: int | None) -> list[str]:
    """Below the word that it begins with."""
    if width is None or len(line) <= width:
        return [line]
    return textwrap.wrap(line, width, subsequent_indent=" " * 10, break_on_hyphens=False)


def _samples(count: int) -> str:
    return "1 sample" if count == 1 else f"{count} samples"


def _known(candidate: Candidate, *, said: str) -> list[str]:
    """Where a candidate's step comes from, and each of its parts; what it misses, unless that was `said` already."""
    forecast = candidate.forecast
    lines = [f"known     {candidate.name}: {forecast.origin}"]
    if forecast.memory_bytes is not None:
        lines.append(f"            {'memory':14}{format_bytes(forecast.memory_bytes):>8}  {forecast.memory_origin}")
    lines += [
        f"              {each.cause:12}{format_bytes(each.size_bytes):>8}  formula" for each in forecast.memory_causes
    ]
    lines += [f"            {each.part:14}{step_time(each.seconds):>8}  {each.origin}" for each in forecast.terms]
    if forecast.wire_bytes:
        lines.append(f"            {'on the wire':14}{format_bytes(forecast.wire_bytes):>8}  a rank and step")
    if forecast.restart is not None:
        lines.append(
            f"            {'restart':14}{format_seconds(forecast.restart.seconds):>8}  {forecast.restart.origin}"
        )
    is_news = forecast.missing not in ("", said)
    return [*lines, f"            no step time: {forecast.missing}"] if is_news else lines


def _forecast(forecast: Forecast, band: float) -> str:
    """A step of the chosen plan: its largest parts, and how far to trust it."""
    told = (each for each in forecast.terms if each.seconds > 0.01 * (forecast.step_seconds or 0.0))
    largest = sorted(told, key=lambda each: -each.seconds)[:3]
    parts = ", ".join(f"{each.part} {step_time(each.seconds)}" for each in largest)
    made_of = f": {parts}" if parts else ""
    trust = "not corrected by any run yet" if forecast.origin.startswith("rates") else f"within {percent(band)}"
    return f"step {step_time(forecast.step_seconds or 0.0)}{made_of} · {forecast.origin}, {trust}"


def _bound(choice: PlanChoice, global_batch: int) -> str:
    """What no plan on as many GPUs goes below, and how likely a failure stops it; empty: no rate is known."""
    forecast = choice.forecast
    if not forecast.flops_per_sample or not forecast.device_flops:
        return ""
    least = forecast.flops_per_sample * global_batch / (choice.mesh.world_size * forecast.device_flops)
    risk = forecast.interrupt_probability
    words = "" if risk is None else f" · P(interrupt) {percent(risk)}"
    return f"no step under {step_time(least)} on {choice.mesh.world_size} GPUs (compute){words}"


def _other_sizes(found: "Preview") -> str:
    """Of an elastic line: the world sizes its plan is ready for beside the chosen one."""
    own = found.choice.is_left_to_program
    worlds = ((size.mesh.world_size, "" if own else f" ({size.name})") for size in found.choice.sizes)
    ready = ", ".join(f"{world}{name}" for world, name in worlds)
    return f"ready for {ready} ranks, too: gangline resize RUN RANKS" if ready else ""


def _have(found: "Preview") -> str:
    """What there is to train on, and how large the model is."""
    inventory = found.inventory
    gpus = inventory.gpus
    machine = f"{gpus.count} x {gpus.name or 'GPU'}" if gpus else f"{inventory.cores} cores"
    nodes = f"{inventory.num_nodes} nodes of " if inventory.num_nodes > 1 else ""
    if found.choice.is_left_to_program:
        return f"{nodes}{machine}"
    parameters = found.choice.forecast.parameters
    model = f"{format_count(parameters)} parameters" if parameters is not None else "model size not known yet"
    return f"{nodes}{machine} · {model}"


def _hypothetical_document(found: "HypotheticalPlan") -> dict[str, object]:
    return {name: getattr(found, name) for name in ("choice", "inventory", "budget", "links", "certificate")}


def _document(found: "Preview") -> dict[str, object]:
    return {
        "run": found.run,
        "commit": found.request.commit,
        "choice": found.choice,
        "inventory": found.inventory,
        "profile": found.profile,
        "budget": found.budget,
        "environment": found.environment,
        "sandbox": {
            "engine": found.sandbox.engine, "text": found.sandbox.text, "gaps": found.sandbox.gaps
        },
    }  # fmt: skip

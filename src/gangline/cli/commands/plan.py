"""`gangline plan`: what a line would get here and why, launching nothing."""

import sys
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
    TargetOption,
)
from gangline.cli.output import print_json, terminal_width, wrap_facts
from gangline.cli.terminal import say, spinner
from gangline.cli.view.known_gpu_lines import known_gpu_lines
from gangline.cli.view.plan_page import hypothetical_page, plan_page
from gangline.cli.workspace import Workspace, open_workspace
from gangline.errors import GateError, UsageError, storage_errors
from gangline.fabric.topology.inventory import Fabric
from gangline.line.gangs.stated_network import PlannedNetwork, planned_network, stated_network
from gangline.line.request.run_request import resolve_request
from gangline.line.request.targets import launcher_of, with_target
from gangline.planner.known_gpus import GPUS_A_SERVER, KnownGpu, hypothetical_inventory, with_known_gpus, with_network
from gangline.planner.layouts.layout import Layout, program_decides
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory

GpusOption = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        metavar="[NAME:]N,...",
        help="Plan for so many GPUs of [gpu.NAME] or a built-in kind, here or not.",
    ),
]
MeasureCostsOption = Annotated[
    Path | None,
    typer.Option(
        "--measure-costs",
        metavar="FILE",
        help="Time updates of the matrix rule; optimizer.cost reads FILE.",
    ),
]

if TYPE_CHECKING:
    from gangline.line.stages.hypothetical import HypotheticalPlan
    from gangline.line.stages.preview import Preview
    from gangline.optim.plan.phases import MatrixPlanReport


def command(
    path: PathArgument = HERE,
    *,
    commit: CommitOption = None,
    set_: SetOption = None,
    strategy: StrategyOption = None,
    target: TargetOption = None,
    memory_run: Annotated[
        bool, typer.Option("--memory-run", help="Follow the memory of the best two plans, however much room they have.")
    ] = False,
    why: Annotated[bool, typer.Option("--why", help="Show all plans, and where each number comes from.")] = False,
    terms: Annotated[
        str | None, typer.Option("--terms", metavar="PLAN", help="Show where each number of one plan comes from.")
    ] = None,
    gpus: GpusOption = None,
    fabric: FabricOption = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="Longest training: 90m, 36h, 14d, or seconds.")
    ] = None,
    budget: Annotated[float | None, typer.Option("--budget", help="Most money, in the site's currency.")] = None,
    now: Annotated[
        bool,
        typer.Option("--now", help="Show plans that start on servers free at this minute; exit 20 without any."),
    ] = False,
    measure_costs: MeasureCostsOption = None,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Show the plans that were considered, the one that won, and a reason for every one that lost."""
    workspace = open_workspace(repo / path, site, logs=False)
    stated = stated_network(workspace.environ, fabric)
    network = None if stated is None else planned_network(stated, workspace.store)
    where, devices = _devices(with_target(workspace.site, target), gpus, network.fabric if network else None)
    question = PlanQuestion(
        workspace=workspace, site=where, devices=devices, network=network, commit=commit, strategy=strategy,
        overrides=(*(set_ or ()), *_bounds(deadline, budget)), memory_run=memory_run, now=now,
    )  # fmt: skip
    width = terminal_width() if sys.stdout.isatty() else None
    if (asked := None if measure_costs else question.hypothetical()) is not None:
        gate = asked.budget
        answer = _hypothetical_document(asked, why=why) if json else hypothetical_page(
            asked, why=why, terms=terms, width=width
        )  # fmt: skip
    else:
        preview = question.preview()
        if measure_costs is not None:
            _write_costs(preview, measure_costs)
        gate = preview.budget
        answer = _document(preview, why=why) if json else plan_page(preview, why=why, terms=terms, width=width)
    _show(answer, where, devices, width=width)
    if gate.verdict == "no":
        raise typer.Exit(GateError.exit_code)


def _write_costs(found: "Preview", file: Path) -> None:
    from gangline.line.stages.optimizer_plan import measured_cost_table

    with spinner("timing updates of each shape"):
        text = measured_cost_table(found.request.line, found.profile, found.inventory, found.choice.device)
    with storage_errors(file):
        file.write_text(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanQuestion:
    """The request of a plan, and its devices."""

    workspace: Workspace
    site: Site
    devices: Inventory | None
    """Requested devices; None: the existing ones."""
    network: PlannedNetwork | None
    commit: str | None
    strategy: str | None
    overrides: tuple[str, ...]
    memory_run: bool
    now: bool
    """Only on servers that are free."""

    def hypothetical(self) -> "HypotheticalPlan | None":
        """Plan by formula on devices that were asked for; None: the line does not give the shape of its model."""
        if self.devices is None:
            return None
        if self.now:
            raise UsageError("--now: wanted servers that are there, found --gpus; leave one of them out")
        request = resolve_request(
            self.workspace.repo, commit=self.commit, overrides=self.overrides, strategy=self.strategy
        )
        if request.line.plan.transformer is None:
            return None
        from gangline.line.stages.hypothetical import plan_hypothetically

        return plan_hypothetically(request, site=self.site, inventory=self.devices, network=self.network)

    def preview(self) -> "Preview":
        """Plan that a run would get."""
        from gangline.line.stages.preview import preview

        if _asks_servers(self.site):
            from gangline.cli.log_setup import set_up_logs

            set_up_logs(self.workspace.environ)
        with spinner("packing the code") as tell:

            def planned(devices: Inventory | None) -> "Preview":
                return preview(
                    self.workspace.repo, site=self.site, environ=self.workspace.environ, commit=self.commit,
                    overrides=self.overrides, strategy=self.strategy, memory_run=self.memory_run, notify=tell,
                    devices=devices, fabric=self.network.fabric if self.network else None,
                )  # fmt: skip

            found = planned(self.devices)
            if not self.now:
                return found
            from gangline.line.stages.preview import choice_now, free_servers

            if found.inventory.others:
                found = planned(replace(found.inventory, others=()))
            free = free_servers(self.site, self.workspace.environ, found.inventory)
            return replace(found, choice=choice_now(found, free, planned))


def _asks_servers(site: Site) -> bool:
    """Whether requests may be retried, which is logged; a plan on this machine from its own files logs nothing."""
    return launcher_of(site.launch.target).has_pods or not site.store.url.startswith("file:")


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
    known_gpus = site if gpus is None else with_known_gpus(site, gpus)
    where = known_gpus if network is None else with_network(known_gpus, network)
    if gpus is None:
        return where, None
    return where, hypothetical_inventory(where, gpus, gpus_a_server=network.rails if network else GPUS_A_SERVER)


def _show(answer: dict[str, object] | str, site: Site, devices: Inventory | None, *, width: int | None) -> None:
    """A document as JSON, a page as it is; both with what is published and assumed of built-in kinds of GPU."""
    kinds = devices.kinds if devices else ()
    if isinstance(answer, dict):
        tables = {kind.gpus.name: site.gpu[kind.gpus.name] for kind in kinds if kind.gpus}
        known = {name: table for name, table in tables.items() if isinstance(table, KnownGpu)}
        print_json({**answer, "known_gpus": known})
        return
    lines = known_gpu_lines(site, devices) if devices else ()
    say("\n".join([answer, *(part for line in lines for part in wrap_facts(line, width))]))


def _hypothetical_document(found: "HypotheticalPlan", *, why: bool) -> dict[str, object]:
    shown = {name: getattr(found, name) for name in ("choice", "inventory", "budget", "links", "certificate")}
    return {**shown, "optimizer": _matrix_plans(found) if why else ()}


def _document(found: "Preview", *, why: bool) -> dict[str, object]:
    return {
        "run": found.run,
        "commit": found.request.commit,
        "choice": found.choice,
        "inventory": found.inventory,
        "profile": found.profile,
        "optimizer": _matrix_plans(found) if why and not program_decides(found.request.line) else (),
        "budget": found.budget,
        "environment": found.environment,
        "data": found.data,
        "sandbox": {
            "engine": found.sandbox.engine, "text": found.sandbox.text, "gaps": found.sandbox.gaps
        },
    }  # fmt: skip


def _matrix_plans(found: "Preview | HypotheticalPlan") -> "tuple[MatrixPlanReport, ...]":
    """Plan of each pipeline rank, slow for many GPUs; empty: no matrix rule, or it is known in ranks alone."""
    line, choice = found.request.line, found.choice
    if read_matrix_rule(line.optimizer) is None:
        return ()
    from gangline.line.stages.optimizer_plan import plan_reports

    return plan_reports(
        line, found.profile, Layout(choice.strategy, choice.mesh), choice.device, pp_schedule=choice.pp_schedule,
        updates=choice.forecast.updates,
    )  # fmt: skip

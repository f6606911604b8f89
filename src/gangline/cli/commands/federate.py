"""`gangline federate`: a member of a federation joins and approves code; a coordinator sees its members."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import columns, print_json
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.errors import ConfigError, UsageError
from gangline.flare.join import EXECUTOR, close
from gangline.flare.kit import CLIENT, SERVER, joined_kit, open_kit, remember
from gangline.flare.member.approval import OfferedCode
from gangline.flare.member.federation_member import FederationMember
from gangline.flare.member.settings import read_settings, write_settings
from gangline.flare.states import read_states

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)
KitOption = Annotated[
    Path | None, typer.Option("--kit", help="Client kit of the member.", show_default="the one that joined last")
]
CodeArgument = Annotated[str, typer.Argument(help="Code, by the beginning of its digest.", metavar="CODE")]


@app.callback()
def root() -> None:
    """Take part in federated training: data stay where they are, and each code waits for approval."""


@app.command()
def join(
    kit: Annotated[Path, typer.Argument(help="Folder that `nvflare provision` made for this member.", metavar="KIT")],
    *,
    data: Annotated[Path, typer.Option("--data", help="Folder that approved model code may read, and nothing else.")],
    epsilon: Annotated[
        float, typer.Option("--epsilon", min=0.0, help="Privacy budget for each record, over all runs together.")
    ] = 0.0,
) -> None:
    """Close what NVFlare leaves open in a member's kit, and name the folder of data."""
    found = open_kit(kit, CLIENT)
    if not data.is_dir():
        raise UsageError(f"--data: wanted a folder, found none at {data}")
    write_settings(found, data=data.resolve(), epsilon=epsilon)
    read_settings(found)
    close(found)
    remember(found, _environ())
    server = found.server
    say(f"member    {found.name}")
    say(f"allows    one class of NVFlare jobs, {EXECUTOR}")
    say("closes    jobs that bring code, shell commands, upload of logs: NVFlare's defaults grant all three")
    say(f"settings  {found.settings}")
    say(f"next      {found.folder}/startup/start.sh dials out to {server} by mutual TLS; nothing listens here")


@app.command()
def pending(*, kit: KitOption = None, json: JsonOption = False) -> None:
    """List the code layers that wait for approval here."""
    member = _member(kit)
    budget, spent = member.settings().epsilon, member.ledger.spent()
    found = [each for each in member.codes.all() if each.is_pending]
    if json:
        print_json([_facts(each) for each in found])
        return
    if not found:
        say("nothing is pending")
        return
    rows = [
        (each.offer.code[:8], each.offer.terms.commit[:7], each.offer.terms.plan.project, each.offer.key_id,
         _asks(each, budget - spent), f"{each.since.astimezone():%Y-%m-%d %H:%M}")
        for each in found
    ]  # fmt: skip
    say(columns([("CODE", "COMMIT", "PROJECT", "SIGNED BY", "ASKS FOR", "SINCE"), *rows]))


@app.command()
def show(
    code: CodeArgument,
    *,
    into: Annotated[
        Path | None, typer.Option("--into", help="Folder to unpack the code into.", show_default="./code-CODE")
    ] = None,
    kit: KitOption = None,
    json: JsonOption = False,
) -> None:
    """Show who takes part in a run, and unpack its code for reading; nothing of it runs."""
    member = _member(kit)
    found = member.codes.named(code)
    folder = into or Path(f"code-{found.offer.code[:8]}")
    if folder.exists():
        raise UsageError(f"--into: wanted a new folder, found {folder}; name another or delete it")
    count = member.codes.unpack(found, folder)
    if json:
        print_json(_facts(found) | {"folder": str(folder)})
        return
    terms = found.offer.terms
    say(f"code      {found.offer.code}")
    say(f"commit    {terms.commit}")
    say(f"project   {terms.plan.project}, run {terms.plan.run}, task {terms.plan.program.task}")
    say(f"signed    by key {found.offer.key_id}")
    say(f"roster    {', '.join(terms.roster)}")
    say(f"asks for  {_asks(found, member.settings().epsilon - member.ledger.spent())}")
    say(f"files     {count}, unpacked into {folder}")


@app.command()
def approve(code: CodeArgument, *, kit: KitOption = None) -> None:
    """Let a code run on this member's data, among the members that it names; read it first."""
    member = _member(kit)
    found = member.codes.named(code)
    member.codes.approve(found, by="administrator")
    say(f"approved  {found.offer.code[:8]} among {', '.join(found.offer.terms.roster)}")


@app.command()
def members(*, repo: RepoOption = HERE, site: SiteOption = None, json: JsonOption = False) -> None:
    """List the members of this site's federation, as its coordinator saw them last."""
    table = open_workspace(repo, site, anywhere=True).site.federation
    if table.kit is None:
        raise ConfigError("site.toml: wanted federation.kit, found none; members are simulated here")
    states = read_states(open_kit(Path(table.kit), SERVER))
    known = {each.name: each for each in states}
    if json:
        print_json(states)
        return
    rows = [
        (name, known[name].state, known[name].message) if name in known else (name, "unknown", "no run has asked it")
        for name in sorted({*known, *table.members})
    ]
    say(columns([("MEMBER", "STATE", "WHY"), *rows]))


def _member(kit: Path | None) -> FederationMember:
    return FederationMember(joined_kit(kit, _environ()))


def _environ() -> Mapping[str, str]:
    return os.environ


def _asks(code: OfferedCode, left: float) -> str:
    terms = code.offer.terms
    if terms.epsilon is None:
        return f"{terms.trainings} trainings, no privacy"
    return f"{terms.trainings} trainings, epsilon {terms.epsilon:g} of {left:g} left"


def _facts(code: OfferedCode) -> dict[str, object]:
    terms = code.offer.terms
    return {
        "code": code.offer.code, "commit": terms.commit, "project": terms.plan.project, "run": terms.plan.run,
        "key": code.offer.key_id, "roster": terms.roster, "trainings": terms.trainings, "epsilon": terms.epsilon,
        "delta": terms.delta, "since": code.since.isoformat(timespec="seconds"),
    }  # fmt: skip

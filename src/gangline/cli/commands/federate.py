"""`gangline federate`: a member of a federation joins and approves code; a coordinator sees its members."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption, command_group
from gangline.cli.output import answer, columns, print_json
from gangline.cli.terminal import say
from gangline.cli.workspace import open_workspace
from gangline.errors import ConfigError, UsageError
from gangline.flare.join import EXECUTOR, close
from gangline.flare.kit import CLIENT, SERVER, joined_kit, open_kit, read_states, remember
from gangline.flare.member.approval import ADMINISTRATOR, OfferedCode
from gangline.flare.member.federation_member import FederationMember, read_settings, write_settings
from gangline.flare.offer import OfferTerms
from gangline.sanitize import one_line
from gangline.spec.codec import canonical
from gangline.spec.config.secrets import is_reference

_ENVIRON = os.environ
app = command_group("Take part in federated training: data stay where they are, and each code waits for approval.")
KitOption = Annotated[
    Path | None, typer.Option("--kit", help="Client kit of the member.", show_default="the one that joined last")
]


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
    remember(found, _ENVIRON)
    server = found.server
    say(f"member    {found.name}")
    say(f"allows    one class of NVFlare jobs, {EXECUTOR}")
    say("closes    jobs that bring code, shell commands, upload of logs: NVFlare's defaults grant all three")
    say(f"settings  {found.settings}")
    say(f"next      {found.folder}/startup/start.sh dials out to {server} by mutual TLS; nothing listens here")


@app.command()
def pending(*, kit: KitOption = None, json: JsonOption = False) -> None:
    """List the offers that wait for approval here."""
    member = _member(kit)
    budget, spent = member.settings().epsilon, member.ledger.spent()
    codes = member.pending()
    rows = [
        (code.offer.terms_digest[:8], code.offer.terms.commit[:7], code.offer.terms.plan.project, code.offer.key_id,
         _asks(code.offer.terms, budget - spent), f"{code.since.astimezone():%Y-%m-%d %H:%M}")
        for code in codes
    ]  # fmt: skip
    table = columns([("OFFER", "COMMIT", "PROJECT", "SIGNED BY", "ASKS FOR", "SINCE"), *rows])
    answer([_facts(code) for code in codes], table if rows else "nothing is pending", json=json)


@app.command()
def show(
    offer: Annotated[str, typer.Argument(help="Offer, by the beginning of its digest.", metavar="OFFER")],
    *,
    into: Annotated[
        Path | None,
        typer.Option("--into", help="Folder to unpack the code and its plan into.", show_default="./offer-OFFER"),
    ] = None,
    kit: KitOption = None,
    json: JsonOption = False,
) -> None:
    """Show everything that an approval is for, and unpack the code for reading; nothing of it runs."""
    member = _member(kit)
    code = member.codes.named(offer)
    folder = into or Path(f"offer-{code.offer.terms_digest[:8]}")
    if folder.exists():
        raise UsageError(f"--into: wanted a new folder, found {folder}; name another or delete it")
    count = member.codes.unpack(code.offer, folder)
    if json:
        print_json(_facts(code) | {"folder": str(folder)})
        return
    for name, said in _page(code.offer.terms, left=member.settings().epsilon - member.ledger.spent()):
        say(f"{name:<10}{one_line(said)}")
    say(f"signed    by key {code.offer.key_id}")
    say(f"files     {count} in {folder}/code, of digest {code.offer.code}")
    say(f"settings  all of them in {folder}/plan.json")
    say(f"next      gangline federate approve {code.offer.terms_digest}")


@app.command()
def approve(
    digest: Annotated[str, typer.Argument(help="Whole digest of an offer, the last word of `show`.", metavar="DIGEST")],
    *,
    kit: KitOption = None,
) -> None:
    """Let the offer that was shown run on this member's data; one that was changed since is refused."""
    member = _member(kit)
    code = member.codes.seen(digest)
    member.codes.approve(code.offer, by=ADMINISTRATOR)
    say(f"approved  offer {digest[:8]} among {one_line(', '.join(code.offer.terms.roster))}")


@app.command()
def members(*, repo: RepoOption = HERE, site: SiteOption = None, json: JsonOption = False) -> None:
    """List the members of this site's federation, as its coordinator saw them last."""
    table = open_workspace(repo, site, anywhere=True).site.federation
    if table.kit is None:
        raise ConfigError("site.toml: wanted federation.kit, found none; members are simulated here")
    if is_reference(table.kit):
        raise ConfigError(
            "federation.kit: wanted a folder, in which a coordinator of this machine writes who its members are, found"
            " a Secret of a cluster; a run there says on its own screen who is missing and why"
        )
    states = read_states(open_kit(Path(table.kit), SERVER))
    known = {state.name: state for state in states}
    rows = [
        (name, known[name].state, known[name].message) if name in known else (name, "unknown", "no run has asked it")
        for name in sorted({*known, *table.members})
    ]
    answer(states, columns([("MEMBER", "STATE", "WHY"), *rows]), json=json)


def _member(kit: Path | None) -> FederationMember:
    return FederationMember(joined_kit(kit, _ENVIRON))


def _page(terms: OfferTerms, *, left: float) -> Iterator[tuple[str, str]]:
    """Name and words of what a run asks of a member."""
    plan, table = terms.plan, terms.table
    yield "project", f"{plan.project}, commit {terms.commit}, run {plan.run}, task {plan.program.task}"
    yield "model", canonical(plan.model).decode()
    yield "roster", f"{', '.join(terms.roster)}; a quorum of {table.quorum} merges"
    yield "asks for", f"{_asks(terms, left)}, of {table.local_steps} steps each"
    seen = "sums alone" if table.secure_sum else "each member's change, loss and metrics"
    yield "shows", f"the coordinator sees {seen}"
    if table.epsilon is not None:
        yield "privacy", f"delta {table.delta:g}, gradient of each record clipped to {table.clip_grad:g}"


def _asks(terms: OfferTerms, left: float) -> str:
    if terms.table.epsilon is None:
        return f"{terms.plan.most_trainings} trainings, no privacy"
    return f"{terms.plan.most_trainings} trainings, epsilon {terms.table.epsilon:g} of {left:g} left"


def _facts(code: OfferedCode) -> dict[str, object]:
    terms = code.offer.terms
    return {
        "offer": code.offer.terms_digest, "code": code.offer.code, "commit": terms.commit,
        "project": terms.plan.project, "run": terms.plan.run, "key": code.offer.key_id, "roster": terms.roster,
        "trainings": terms.plan.most_trainings, "secure_sum": terms.table.secure_sum, "epsilon": terms.table.epsilon,
        "delta": terms.table.delta, "since": code.since.isoformat(timespec="seconds"),
    }  # fmt: skip

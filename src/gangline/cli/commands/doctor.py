"""`gangline doctor`: what works here, and what works without the rest."""

import typer

from gangline.cli.checkup import Finding, check_machine
from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import print_json
from gangline.cli.view.waiting import waiting
from gangline.errors import ConfigError


def command(*, repo: RepoOption = HERE, site: SiteOption = None, json: JsonOption = False) -> None:
    """Look at python, git, torch, cores, store and GPUs; exit 0 unless something needed is broken."""
    with waiting("looking at this machine"):
        findings = check_machine(repo, site)
    broken = [finding for finding in findings if finding.needed and not finding.ok]
    if json:
        print_json({"ok": not broken, "findings": findings})
    else:
        _print(findings, broken)
    if broken:
        raise typer.Exit(ConfigError.exit_code)


def _print(findings: list[Finding], broken: list[Finding]) -> None:
    typer.echo(" · ".join(str(finding) for finding in findings if finding.ok))
    absent = [finding for finding in findings if not finding.ok and not finding.needed]
    for finding in absent:
        typer.echo(f"{finding.name} absent: {finding.without}")
    for finding in broken:
        typer.echo(f"✗ {finding.name} broken: {finding.text}; {finding.without}")
    if not broken:
        typer.echo("nothing absent is needed by `gangline run`" if absent else "everything is here")

"""`gangline doctor`: what works here, and what works without the rest."""

from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.machine_check import Finding, check_machine
from gangline.cli.options import HERE, JsonOption, RepoOption, SiteOption
from gangline.cli.output import print_json
from gangline.cli.terminal import say, spinner
from gangline.cli.workspace import open_workspace
from gangline.errors import ConfigError


def command(
    *,
    cluster: Annotated[bool, typer.Option("--cluster", help="Look at the site's Kubernetes cluster instead.")] = False,
    repo: RepoOption = HERE,
    site: SiteOption = None,
    json: JsonOption = False,
) -> None:
    """Look at python, git, torch, cores, store and GPUs; exit 0 unless something needed is broken."""
    with spinner("looking at the cluster" if cluster else "looking at this machine"):
        findings = _look_at_cluster(repo, site) if cluster else check_machine(repo, site)
    broken = [finding for finding in findings if finding.needed and not finding.ok]
    if json:
        print_json({"ok": not broken, "findings": findings})
    else:
        _print(findings, broken)
    if broken:
        raise typer.Exit(ConfigError.exit_code)


def _look_at_cluster(repo: Path, site: Path | None) -> list[Finding]:
    from gangline.cli.cluster_check import check_cluster

    findings, facts = check_cluster(open_workspace(repo, site, anywhere=True))
    return [*findings, Finding(name="facts", ok=True, text=f"in {facts}")]


def _print(findings: list[Finding], broken: list[Finding]) -> None:
    say(" · ".join(str(finding) for finding in findings if finding.ok))
    absent = [finding for finding in findings if not finding.ok and not finding.needed]
    for finding in absent:
        say(f"{finding.name} absent: {finding.without}")
    for finding in broken:
        say(f"✗ {finding.name} broken: {finding.text}; {finding.without}")
    if not broken:
        say("nothing absent is needed by `gangline run`" if absent else "everything is here")

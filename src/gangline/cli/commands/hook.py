"""`gangline hook`: a bare repository of this machine builds what is pushed to it."""

import os
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.background_driver import start_driver
from gangline.cli.log_setup import set_up_logs
from gangline.cli.options import SiteOption, command_group
from gangline.cli.terminal import say
from gangline.errors import GanglineError, UsageError, storage_errors
from gangline.forge.bare_repository import Push, choose_pushes, install_hook, read_pushes
from gangline.git.branches import check_branch
from gangline.git.clones import Clones
from gangline.git.mirror import RemoteBranches
from gangline.report.text import clean
from gangline.spec.config.load import load_site
from gangline.storage import site_paths

app = command_group("Build what is pushed to a bare repository of this machine.")
_CLONE = "pushed"
_AT_ONCE = 4
_KEPT_SECONDS = 86_400.0
"""How long a clone stays after the longest run of it."""


@app.command()
def install(
    path: Annotated[Path, typer.Argument(help="Bare repository, e.g. /srv/git/model.git.")],
    *,
    chain: Annotated[bool, typer.Option("--chain", help="Keep a hook that is there and call it first.")] = False,
    site: SiteOption = None,
) -> None:
    """Write its post-receive hook: every branch that is pushed starts a run in the background."""
    load_site(site, environ=os.environ)  # a wrong one is found now, not at a push
    command = [_program(), "hook", "post-receive", *(("--site", str(site.resolve())) if site else ())]
    written = install_hook(path, command, chain=chain)
    site_paths.home(path)
    say(f"{written}\nwhat it starts: gangline list --repo {path.resolve()}")


@app.command(name="post-receive")
def post_receive(*, site: SiteOption = None) -> None:
    """Start a run for each pushed branch and do not wait; git calls this after a push, in the repository."""
    environ = os.environ
    if "GIT_QUARANTINE_PATH" in environ:
        raise UsageError("this push is not accepted yet: wanted to be called as post-receive, not as pre-receive")
    for name in [name for name in environ if name.startswith("GIT_")]:
        del environ[name]  # nothing below is about the git that called us
    set_up_logs(environ)
    repo = Path.cwd()
    wanted, pushes = choose_pushes(read_pushes(os.fsdecode(line) for line in sys.stdin.buffer))
    if wanted:
        receiver = _Receiver(repo, site, environ)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for said in pool.map(receiver.start_run, wanted):
                say(f"gangline: {said}", err=True)
        receiver.tidy()
    if pushes:
        say(
            f"gangline: {len(pushes)} more branches start no run now; their next push does, or gangline run in a clone",
            err=True,
        )


class _Receiver:
    """Fetches pushed commits into the clone from which runs are driven."""

    def __init__(self, repo: Path, site_file: Path | None, environ: Mapping[str, str]) -> None:
        from gangline.serve.context.home import ServiceHome, effective_site

        self._repo = repo
        self._site = effective_site(repo, load_site(site_file, environ=environ))
        home = site_paths.home(repo) / "hook" / str(os.getuid())  # who pushes by ssh is not always the same user
        with storage_errors(home):
            home.mkdir(parents=True, exist_ok=True)
            home.chmod(0o700)
        self._site_file = ServiceHome(home).write_site(self._site)
        self._clones = Clones(home / "clones")

    def tidy(self) -> None:
        """Remove clones that were not used lately; a run ends sooner."""
        try:
            self._clones.release(idle_seconds=self._site.limits.run_seconds + _KEPT_SECONDS)
        except (GanglineError, OSError) as error:
            say(f"gangline: old clones stay: {clean(error, 300)}", err=True)

    def start_run(self, push: Push) -> str:
        """Start the run of a push; returns one sentence for the user. A failure does not undo the push."""
        try:
            return clean(self._start(push), 300)
        except GanglineError as error:
            return clean(f"no run of {push.branch}: {error}", 300)

    def _start(self, push: Push) -> str:
        check_branch(push.branch)
        self._clones.fetch(str(self._repo), name=_CLONE, refs=[push.ref], local=True)
        default = self._clones.fetch_default_branch(str(self._repo), name=_CLONE, local=True)
        known = {push.branch: push.commit} | (dict([default]) if default else {})
        standing = RemoteBranches(default[0] if default else None, known)
        place = self._clones.checkout(_CLONE, push.commit, standing=standing)
        no = self._refusal(push, place)
        if no is not None:
            return f"no run of {push.branch}: {no}"
        named = ["--commit", push.commit, f"--branch={push.branch}", "--site", str(self._site_file)]
        driver = start_driver([str(place), *named])
        return f"run {driver.run} started; gangline follow {driver.run} --repo {self._repo}"

    def _refusal(self, push: Push, place: Path) -> str | None:
        """Why the triggers of its line start no run; None: they start one."""
        from gangline.serve.database.types import Order
        from gangline.serve.orders.commit_reader import read_line
        from gangline.serve.orders.triggers import trigger_refusal

        line = read_line(place, push.commit)
        if line is None:
            return "the commit has no line.toml"
        changed = self._clones.changed(_CLONE, push.old, push.commit) if push.old else None
        order = Order(project=line.project.name, ref=push.ref, branch=push.branch)
        return trigger_refusal(order, line.trigger, branch=push.branch, changed=changed)


def _program() -> str:
    """`gangline` by its absolute name: a hook is called with whatever PATH the server has."""
    beside = Path(sys.executable).with_name("gangline")
    found = str(beside) if beside.exists() else shutil.which("gangline")
    if found is None:
        raise UsageError(f"wanted the program gangline in the folder of {sys.executable} or on the PATH, found none")
    return found

"""`gangline drill`: from a name to a judged, recorded rehearsal, in a run of its own or in one that trains now."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gangline.errors import ConfigError
from gangline.line import runs
from gangline.line.drill.catalogue import choose
from gangline.line.drill.own_run import in_own_run
from gangline.line.drill.rehearse import Desk, Wish, rehearse, settle
from gangline.spec.record import Drill, Record
from gangline.spec.site import Site

EXIT_CODES: dict[Literal["held", "broken", "not_struck"], int] = {"held": 0, "broken": 60, "not_struck": 10}


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillReport:
    run: str
    drill: Drill
    """As it stands in the record."""
    lines: tuple[str, ...]
    """What was told."""
    replay: str
    """The command that does the same again."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.drill.result]


def drill(
    name: str,
    *,
    repo: Path,
    site: Site,
    environ: Mapping[str, str],
    run: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    seconds: float | None = None,
    seed: int = 1,
    tell: Callable[[str], None] = print,
) -> DrillReport:
    """Rehearse `name`, tell each line when it is known, and write the result into the run's record.

    Args:
        name: One of `catalogue.DRILLS`.
        repo: Folder of the line.
        site: Must allow the drill.
        environ: For secret references.
        run: One that trains on this machine now; None: a fresh one of HEAD, driven to its end.
        rank: Whom it strikes.
        step: When: after this step.
        seconds: How long a lasting fault lasts.
        seed: Chooses what is left open.
        tell: Gets every line.

    Raises:
        ConfigError: The drill is refused.
        UsageError: No such run, rank or step.
        GanglineError: What kept a fresh run from training.
    """
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        tell(line)

    wish = Wish(kind=choose(name, site), rank=rank, step=step, seconds=seconds, seed=seed)
    desk = Desk(repo=repo, site=site, environ=environ, store=runs.open_site_store(repo, site, environ), tell=say)
    record, found = in_own_run(desk, wish) if run is None else _in_run(desk, wish, run)
    again = _replay(found, wish, run)
    say(_result_line(found, again))
    return DrillReport(run=record.run.id, drill=found, lines=tuple(lines), replay=again)


def _in_run(desk: Desk, wish: Wish, run: str) -> tuple[Record, Drill]:
    """Strike a run that somebody drives."""
    record = runs.find_run(desk.store, run)
    if record.run.state == "ended" or record.gang is None:
        raise ConfigError(f"run {record.run.id} does not train now; without --run the drill starts one of its own")
    done = rehearse(desk, wish, record)
    return settle(desk, wish, runs.find_run(desk.store, record.run.id), done)


def _replay(found: Drill, wish: Wish, run: str | None) -> str:
    words = [f"gangline drill {found.name}"]
    words += [f"--run {run}"] if run else []
    words += [f"--{key} {value}" for key, value in found.arguments.items() if key in {"rank", "step", "seconds"}]
    return " ".join([*words, f"--seed {wish.seed}"])


def _result_line(found: Drill, again: str) -> str:
    said = {"held": "HELD", "broken": f"BROKEN {found.reason}", "not_struck": f"NOT STRUCK {found.reason}"}
    return f"result   {said[found.result]}    replay: {again}"

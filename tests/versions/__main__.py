"""gangline under every tested Python with every tested torch: `make test-versions`, or `python -m tests.versions`.

Each pair gets `make setup-dev`, `make demo`, a line whose lock asks for another Python and torch, and a slice of the
training suite, in a copy of this tree below `~/.cache/gangline/versions` (`GANGLINE_VERSIONS` names another folder).
The pair that `make gpu-kit` is for rehearses its session on the processor, too. Extras are tried at their oldest and
newest versions under the oldest Python (`--only extras`, or `--only extras.s3`).
Environments stay there, so a second time costs what the checks cost; all nine take about 25 GB, shared with uv's cache.
"""

import argparse
import os
import sys
from pathlib import Path

from tests.versions.combination import Check, Combination
from tests.versions.extras import EXTRAS, RESOLUTIONS, Extra, check_extra
from tests.versions.results import Result, merge, table, write

from gangline.build.virtualenv import Uv
from gangline.build.virtualenv.interpreters import find_interpreter
from gangline.errors import GanglineError
from gangline.spec.versions import PYTHONS


def main() -> int:
    asked = arguments()
    only = asked.only.split(",") if asked.only else []
    chosen = [each for each in Combination.every(folder()) if not only or each.name in only]
    extras = [each for each in EXTRAS if not only or "extras" in only or f"extras.{each.name}" in only]
    if not (chosen or extras):
        names = ", ".join([*(each.name for each in Combination.every(folder())), "extras", "extras.NAME"])
        sys.stderr.write(f"versions  ONLY: wanted some of {names}, found {asked.only}\n")
        return 10
    try:
        pythons = {python: interpreter(python) for python in PYTHONS}
    except GanglineError as error:
        sys.stderr.write(f"versions  {error}\n")
        return error.exit_code
    tried = [prove_extra(extra, resolution, pythons[PYTHONS[0]]) for extra in extras for resolution in RESOLUTIONS]
    results = [prove(each, pythons) for each in chosen]
    if results:
        print(table(results), end="")
    if asked.json:
        write(asked.json, results)
    if asked.record:
        merge(results)
    return 0 if all(each.passed for each in (*results, *tried)) else 30


def prove_extra(extra: Extra, resolution: str, python: Path) -> Check:
    """One extra in an environment of its own, and what came of it in a line."""
    check = check_extra(extra, resolution=resolution, python=python, uv=Uv.find(os.environ).program, folder=folder())
    state = "ok" if check.passed else f"FAILED, see {folder() / 'logs' / check.name}.log"
    say(f"extra {check.name}: {state}, {check.seconds:.0f} s, {check.said}")
    return check


def prove(combination: Combination, pythons: dict[str, Path]) -> Result:
    """Every check of one; nothing else is tried where its setup fails."""
    done: list[Check] = []
    combination.copy_sources()
    for name, command in combination.checks(pythons):
        check = combination.run(name, command, pythons)
        done.append(check)
        state = "ok" if check.passed else f"FAILED, see {combination.log(name)}"
        say(f"{combination.name} {name}: {state}, {check.seconds:.0f} s, {check.said}")
        if name == "setup" and not check.passed:
            break
    return Result.of(combination, done)


def interpreter(python: str) -> Path:
    """Of this machine, as a lock for this Python would get it."""
    return find_interpreter(f"=={python}.*", uv=Uv.find(os.environ), file="make test-versions").program


def folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("GANGLINE_VERSIONS") or cache / "gangline" / "versions")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("--only", help="some of them, as 3.12-2.11,3.13-2.15")
    parser.add_argument("--json", type=Path, help="write what came of this run there")
    parser.add_argument(
        "--record", action="store_true", help="into docs/reference: its table is what `doctor` calls tested"
    )
    return parser.parse_args()


def say(text: str) -> None:
    print(f"versions  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""From a line and what there is to a choice, the same for a run and for those who only ask.

What helps a forecast and cannot be had, rates or earlier runs, never stands in the way of a plan: it is said.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gangline.line.history import History
from gangline.line.inventory import Seen
from gangline.line.rates import rates_of
from gangline.planner.budget import check as check_budget
from gangline.planner.choose import Choice, choose
from gangline.planner.forecast import calibrated_site
from gangline.spec.inventory import Inventory
from gangline.spec.line import Line
from gangline.spec.record import Gate
from gangline.spec.site import Site


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A choice, whether it may be started, and what its forecast had to do without."""

    choice: Choice
    budget: Gate
    site: Site
    """With the margins that earlier runs taught."""
    troubles: tuple[str, ...]


def make_choice(
    line: Line, site: Site, inventory: Inventory, seen: Seen, history: History, *, cache: Path,
    say: Callable[[str], None],
) -> Planned:  # fmt: skip
    """Choose, and hold the budget.

    Args:
        line: What is asked.
        site: As it was read.
        inventory: What ranks may use.
        seen: What this machine is, and the line's model.
        history: Earlier runs of the line.
        cache: Folder of rates that were measured before.
        say: Told what is going on, where it takes seconds.

    Raises:
        ConfigError: Nothing fits, or the line asks for what is not there.
    """
    known = rates_of(line, site, inventory, seen.profile, cache=cache, say=say)
    trusted = calibrated_site(line, site, inventory, history.runs, known.rates)
    choice = choose(line, trusted, inventory, seen.profile, history.runs, rates=known.rates)
    several = sum(each.verdict not in ("no_fit", "unsupported") for each in choice.candidates) > 1
    budget = check_budget(
        line.plan, site.limits, choice.forecast, band=trusted.plan.band, nearest=choice.name if several else ""
    )
    troubles = tuple(each for each in (known.trouble, history.trouble) if each)
    return Planned(choice=choice, budget=budget, site=trusted, troubles=troubles)

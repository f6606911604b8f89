"""`--budget` of commands that train many times: hours of devices, or money that buys them."""

import re
import sys
from typing import Annotated

import typer

from gangline.errors import UsageError
from gangline.metrics.record_values import dearest_price
from gangline.spec.config.site import Site
from gangline.units import format_seconds

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking, whatever it costs.")]
_BUDGET = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z-]*)\Z")


def budget_hours(text: str, site: Site) -> float:
    """Hours of ranks that a budget buys: as written, or money by the dearest GPU of the site.

    Raises:
        UsageError: No amount, another currency, or money where the site has no price.
    """
    match = _BUDGET.match(text.strip())
    if match is None:
        raise UsageError(f"wanted hours or money, found --budget {text!r}; 2, 0.5h and 30{site.money.currency} work")
    amount, unit = float(match["amount"]), match["unit"].lower()
    if unit in {"", "h", "gpu-h", "cpu-h"}:
        return amount
    if unit != site.money.currency.lower():
        raise UsageError(f"wanted {site.money.currency}, the currency of site.toml, found --budget {text!r}; 2h works")
    price = dearest_price(site)
    if price is None:
        raise UsageError(f"--budget {text!r}: site.toml has no gpu.NAME.price_per_hour; give hours: --budget 2h")
    return amount / price


def confirm_cost() -> None:
    """Ask the user whether to begin.

    Raises:
        UsageError: There is no terminal to confirm it.
        typer.Abort: Somebody did not.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("wanted --budget or --yes without a terminal, found neither; --budget 1h sets a limit")
    typer.confirm("Begin?", abort=True, err=True)


def hours_text(hours: float, unit: str) -> str:
    """`12.4 GPU-h`, or minutes of what is little."""
    return f"{hours:.2g} {unit}-h" if hours >= 0.1 else f"{format_seconds(hours * 3600)} of {unit} time"

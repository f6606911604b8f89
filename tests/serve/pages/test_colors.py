"""Colours by the numbers of WCAG 2: words 4.5 to 1 (the browser tests look at each), lines and marks 3 to 1."""

import math
import re
from itertools import combinations

import pytest

from gangline.report import palette
from gangline.serve.pages import STATIC
from gangline.serve.pages.curve_overlay import COLORS

STYLE = STATIC["style.css"][1].decode()
GROUNDS = {"light": ("#ffffff", palette.LIGHT), "dark": ("#1a2129", palette.DARK)}


def luminance(color: str) -> float:
    parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", sorted(GROUNDS))
@pytest.mark.parametrize("color", COLORS)
def test_line_of_a_comparison_contrasts_with_its_ground(color, ground):
    card, colors = GROUNDS[ground]
    assert contrast(colors[color], card) >= 3


def test_grounds_of_this_test_are_those_of_the_style_sheet():
    cards = re.findall(r"--card:(#[0-9a-f]+)", STYLE)
    assert [card if len(card) == 7 else "#" + "".join(c * 2 for c in card[1:]) for card in cards] == [
        "#ffffff",
        "#1a2129",
    ]


RED_GREEN = {"protanopia": (0.11238, 0.88762, 0.00401), "deuteranopia": (0.29275, 0.70725, -0.02234)}
"""What is left of red and green in linear light, and what of their difference goes into blue: Viénot, Brettel and
Mollon, "Digital video colourmaps for checking the legibility of displays by dichromats" (1999)."""


def seen_by(eyes: str, color: str) -> tuple[float, float]:
    """What such eyes tell colours apart by: one sum of red and green, and blue; encoded as a screen does."""
    red, green, blue = (((int(color[at : at + 2], 16) / 255) + 0.055) / 1.055 for at in (1, 3, 5))
    red, green, blue = red**2.4, green**2.4, blue**2.4
    of_red, of_green, moved = RED_GREEN[eyes]
    both, rest = of_red * red + of_green * green, blue + moved * (red - green)
    return both ** (1 / 2.4), max(rest, 0.0) ** (1 / 2.4)


@pytest.mark.parametrize("eyes", sorted(RED_GREEN))
@pytest.mark.parametrize("ground", sorted(GROUNDS))
def test_lines_differ_for_eyes_that_see_no_red_and_green(eyes, ground):
    _, colors = GROUNDS[ground]
    for one, other in combinations(COLORS, 2):
        first, second = seen_by(eyes, colors[one]), seen_by(eyes, colors[other])
        assert math.dist(first, second) >= 0.1, (one, other)


def test_style_sheet_loads_nothing():
    assert not re.search(r"@import|url\(|expression\(", STYLE)

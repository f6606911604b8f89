"""Colours that are distinct for any kind of colour vision (after Okabe and Ito), on light and dark background.

Each mark carries a colour as an attribute, so a reader that blocks style sheets still sees it, and a class that lets
the style sheet choose the one for dark ground. Nothing is shown by colour alone.
"""

LIGHT = {
    "blue": "#0072b2", "sky": "#56b4e9", "green": "#009e73", "yellow": "#d8c21a", "orange": "#e69f00",
    "red": "#d55e00", "pink": "#cc79a7", "grey": "#8a929c", "faint": "#c9d0d8", "ink": "#1f2733",
}  # fmt: skip
DARK = {
    "blue": "#4ba3dd", "sky": "#8fd0f5", "green": "#2fc79a", "yellow": "#f0e060", "orange": "#f4b63f",
    "red": "#f08040", "pink": "#e3a0c4", "grey": "#8b95a1", "faint": "#3d4752", "ink": "#e4e9ef",
}  # fmt: skip

CAUSES = {
    "compute": "green", "wait": "sky", "exchange": "sky", "data": "orange", "bubble": "yellow", "checkpoint": "pink",
    "evaluate": "blue", "build": "blue", "start": "grey", "rendezvous": "grey", "gather": "grey", "image": "grey",
    "resume": "pink",
    "redone": "red", "stalled": "red", "restart": "red", "profile": "yellow", "drill": "yellow", "stop": "grey",
    "idle": "faint", "other": "faint",
}  # fmt: skip
"""Causes of the ledger: work, waiting, keeping, loss."""

STATES = {
    "waiting": "faint", "running": "sky", "done": "green", "taken": "blue", "skipped": "grey", "failed": "red",
    "cancelled": "grey",
}  # fmt: skip


def paint(color: str) -> str:
    """Attributes of a filled mark."""
    return f'class="f-{color}" fill="{LIGHT[color]}"'


def stroke(color: str, width: float = 2) -> str:
    """Attributes of a line whose width does not stretch with the drawing."""
    return (
        f'class="s-{color}" stroke="{LIGHT[color]}" stroke-width="{width:g}" fill="none" '
        'vector-effect="non-scaling-stroke" stroke-linejoin="round"'
    )


def style_rules(colors: dict[str, str]) -> str:
    """Style sheet that gives each class its colour."""
    return "".join(f".f-{name}{{fill:{value}}}.s-{name}{{stroke:{value}}}" for name, value in colors.items())

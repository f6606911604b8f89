"""Templates of `gangline new`: one folder each; `FILE.in` becomes `FILE`, `__NAME__` the project.

A repository says nothing about Jenkins: its builds run the pipeline of the controller's library.
"""

from importlib.resources import files

from gangline.errors import UsageError

TEMPLATES = {"model": "a byte-level GPT in one file, a task that trains on CPUs within a minute"}
"""Folder to what is in it."""
_NAME = "__NAME__"


def listing() -> str:
    """A line for each template."""
    return "\n".join(f"  {name:<10} {text}" for name, text in TEMPLATES.items())


def render(template: str, *, name: str) -> dict[str, str]:
    """Path to text of every file of a new repository.

    Raises:
        UsageError: There is no such template.
    """
    if template not in TEMPLATES:
        raise UsageError(f"wanted one of {', '.join(TEMPLATES)}, found {template!r}:\n{listing()}")
    found = [path for path in (files(__name__) / template).iterdir() if path.name.endswith(".in")]
    return {each.name.removesuffix(".in"): each.read_text("utf-8").replace(_NAME, name) for each in found}

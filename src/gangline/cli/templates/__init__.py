"""Model repositories that `gangline new` makes: a folder each, `FILE.in` becomes `FILE`, `__NAME__` the project.

A repository says nothing about Jenkins: its builds run the pipeline of the controller's library.
"""

from importlib.resources import files

from gangline.errors import UsageError

_NAME = "__NAME__"


def template_names() -> list[str]:
    return sorted(each.name for each in files(__name__).iterdir() if each.is_dir() and not each.name.startswith("_"))


def render(template: str, *, name: str) -> dict[str, str]:
    """Path to text of every file of a new repository.

    Raises:
        UsageError: There is no such template.
    """
    if template not in template_names():
        raise UsageError(f"wanted one of {', '.join(template_names())}, found {template!r}")
    found = [each for each in (files(__name__) / template).iterdir() if each.name.endswith(".in")]
    return {each.name.removesuffix(".in"): each.read_text("utf-8").replace(_NAME, name) for each in found}

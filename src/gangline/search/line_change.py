"""The change of `line.toml` that a search proposes: the winner's keys in the text of the commit that was searched."""

from gangline.errors import ConfigError
from gangline.git.repository import Repository
from gangline.spec.config.toml_text import MOST_BYTES, with_values
from gangline.spec.search import Scalar, SearchRequest, SearchView

LINE = "line.toml"


def line_of(repository: Repository, commit: str) -> str:
    """Text of the line of a commit; raises ConfigError where it has none."""
    data = repository.file(repository.tree(commit), LINE, most_bytes=MOST_BYTES)
    if data is None:
        raise ConfigError(f"wanted {LINE} in commit {commit[:8]}, found none")
    return data.decode(errors="replace")


def line_change(repository: Repository, request: SearchRequest, settings: dict[str, Scalar]) -> tuple[str, str]:
    """Text of the line before and with `settings`; raises UsageError for a layout that an edit would not keep."""
    before = line_of(repository, request.commit)
    return before, with_values(before, settings)


def proposed_change(repository: Repository, view: SearchView) -> tuple[str, str] | None:
    """The change that a BETTER answer proposes; None: there is nothing to propose, or the clone lacks the commit."""
    answer = view.answer
    if answer is None or answer.verdict != "BETTER" or not repository.has(view.request.commit):
        return None
    return line_change(repository, view.request, dict(answer.settings))

"""Key of a proposed line, with the origin of its value."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class GuessedKey:
    """A key of the proposed line."""

    table: str
    name: str
    value: object
    why: str
    """Origin of the value; starts with `?` if the value is only a placeholder."""

    @property
    def is_known(self) -> bool:
        """Whether the value comes from the repository and is not a placeholder."""
        return not self.why.startswith("?")

"""Key of a proposed line, with the origin of its value."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class GuessedKey:
    """A key of the proposed line."""

    table: str
    name: str
    value: object
    origin: str
    """Where the value comes from, or what somebody has to say instead."""
    is_known: bool = True
    """The value comes from the repository; false: it is a placeholder."""

    @property
    def why(self) -> str:
        """The origin as the line has it in a comment, after a `?` where the value is a placeholder."""
        return self.origin if self.is_known else f"? {self.origin}"

"""Whether the store answers, as whoever asked it last found it: a dead one then holds up nobody."""

from gangline.errors import StorageError


class StoreHealth:
    """One sentence, or none; safe from any thread."""

    def __init__(self) -> None:
        self._said: str | None = None

    def failed(self, error: StorageError) -> None:
        self._said = str(error)

    def answered(self) -> None:
        self._said = None

    def trouble(self) -> str | None:
        """One sentence while the store is away."""
        return self._said

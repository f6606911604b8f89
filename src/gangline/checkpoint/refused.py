"""The one way a checkpoint is refused: by file and reason."""

from gangline.errors import IntegrityError


class Refused(IntegrityError):
    """A file of a checkpoint that must not be loaded; its arguments survive the way from rank to rank."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(file, reason)
        self.file = file
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"

"""Lines out of a stream of bytes whose length nobody promises; knows of no format."""

from collections.abc import Iterable, Iterator

TooLong = int


def bounded_lines(chunks: Iterable[bytes], *, max_bytes: int) -> Iterator[bytes | TooLong]:
    """Each line without its end; of one longer than `max_bytes` only its length. A last line may lack its end."""
    held = bytearray()
    skipped = 0
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            size = skipped + len(held) + len(piece)
            yield size if size > max_bytes else bytes(held + piece)
            held.clear()
            skipped = 0
        held += rest
        if len(held) > max_bytes:
            skipped += len(held)
            held.clear()
    if held or skipped:
        yield skipped + len(held) if skipped else bytes(held)

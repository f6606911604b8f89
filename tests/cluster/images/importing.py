"""Brings images into the cluster's containerd. Layers that it has unpacked are not sent again."""

import contextlib
import subprocess
import time

from tests.cluster.images.archive import Image, Layer
from tests.cluster.rig.inside import ctr, output
from tests.cluster.rig.output import say
from tests.cluster.rig.trouble import Trouble

_LARGE_BYTES = 1_000_000_000
"""A layer above this is kept unpacked alone: its tar can be made again."""


def ensure(image: Image, *, under: Image | None = None, tag: str | None = None) -> None:
    """Import `image` unless it is there; `under` names an imported one whose layers it shares, `tag` a second name."""
    if image.reference not in imported():
        _send(image, frozenset(layer.digest for layer in under.layers) if under else frozenset())
    for layer in filter(_is_large, image.layers):
        layer.path.unlink(missing_ok=True)
    if tag is not None and f"{image.name}:{tag}" not in imported():
        output(ctr("images", "tag", image.reference, f"{image.name}:{tag}"))


def has(name: str) -> bool:
    """Whether there is an image called `name`, whatever its digest."""
    return any(each.startswith(f"{name}@") for each in imported())


def imported() -> set[str]:
    """Names that containerd knows."""
    return set(output(ctr("images", "ls", "-q")).split())


def forget(name: str, *, but: frozenset[str] = frozenset()) -> None:
    """Remove the images called `name`, whatever their digest, that are not in `but`."""
    old = [each for each in imported() if each.startswith(f"{name}@") and each not in but]
    if old:
        output(ctr("images", "rm", *old))


def _send(image: Image, without: frozenset[str]) -> None:
    began = time.monotonic()
    sent = [_with_tar(layer) for layer in image.layers if layer.digest not in without]
    with subprocess.Popen(
        ctr("images", "import", "-"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):  # it ended early; its own words say why
            image.write(process.stdin, without=without)
            process.stdin.close()
        said = process.stderr.read().decode()
    if process.returncode:
        raise Trouble(f"{image.reference} was not imported: {said.strip()[-1000:]}")
    size = sum(layer.size_bytes for layer in sent)
    say("images", f"{image.name}: {size / 1e6:.1f} MB in {time.monotonic() - began:.1f} s")
    for layer in sent:
        if _is_large(layer):
            output(ctr("content", "rm", layer.digest))


def _is_large(layer: Layer) -> bool:
    return layer.size_bytes > _LARGE_BYTES


def _with_tar(layer: Layer) -> Layer:
    if layer.path.is_file() or layer.make is None:
        return layer
    made = layer.make()
    if made.digest != layer.digest:
        raise Trouble(f"{layer.path.name} was made again and differs: {layer.digest}, now {made.digest}; try again")
    return made

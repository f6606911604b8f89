"""What builds and pushes an environment image: a program of the site, or pip and our own writer.

A builder knows how one tool is called, nothing of keys, bills or signatures. Each is found by its name in `site.toml`.
"""

from collections.abc import Mapping
from typing import Protocol

from gangline.errors import ConfigError
from gangline.line.build.builders.bench import Bench
from gangline.line.build.recipe import Recipe


class Builder(Protocol):
    name: str

    def build(self, recipe: Recipe, bench: Bench) -> str:
        """Build `recipe` and push it to `recipe.target`; the digest of what was pushed, `sha256:...`.

        Raises:
            BuildError: The tool failed; its last lines are told.
            ConfigError: The tool is not there, or the base does not suit it.
        """
        ...


def open_builder(name: str, environ: Mapping[str, str]) -> Builder:
    """The builder that `registry.builder` names; "none" builds nothing and has none."""
    if name == "docker":
        from gangline.line.build.builders.docker import Docker

        return Docker()
    if name == "buildah":
        from gangline.line.build.builders.buildah import Buildah

        return Buildah()
    if name == "buildkit":
        from gangline.line.build.builders.buildkit import BuildKit

        return BuildKit(tls_folder=environ.get("BUILDKIT_TLS_DIR"))
    if name == "layer":
        from gangline.line.build.builders.layer import PipLayer

        return PipLayer()
    raise ConfigError(f"registry.builder: wanted docker, buildah, buildkit or layer, found {name!r}")

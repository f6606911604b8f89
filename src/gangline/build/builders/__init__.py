"""Builders of environment images: docker, buildah, BuildKit, or pip with our own OCI writer.

A builder knows how one tool is called, and nothing of keys, bills of materials or signatures. Each is found by its
name in `site.toml`.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from gangline.build.builders.recipe import Recipe
from gangline.build.builders.workspace import BuildWorkspace
from gangline.errors import ConfigError


class Builder(Protocol):
    """Makes an image of a recipe and pushes it."""

    name: str

    def build(self, recipe: Recipe, workspace: BuildWorkspace) -> str:
        """Build `recipe` and push it to `recipe.target`; the digest of what was pushed, `sha256:...`.

        Raises:
            BuildError: The tool failed; the message has its last lines.
            ConfigError: The tool is not there, or the base does not suit it.
        """
        ...


def open_builder(name: str, environ: Mapping[str, str]) -> Builder:
    """The builder that `registry.builder` names; "none" builds nothing and has none."""
    from gangline.build.builders import dockerfile, pip_layer

    builders: dict[str, Callable[[], Builder]] = {
        "docker": dockerfile.Docker,
        "buildah": dockerfile.Buildah,
        "buildkit": lambda: dockerfile.BuildKit(tls_folder=environ.get("BUILDKIT_TLS_DIR")),
        "layer": pip_layer.PipLayer,
    }
    if name in builders:
        return builders[name]()
    raise ConfigError(f"registry.builder: wanted docker, buildah, buildkit or layer, found {name!r}")

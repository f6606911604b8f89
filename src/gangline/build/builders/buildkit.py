"""BuildKit on a cluster: `buildctl` to a daemon over mTLS, cache in the registry, its own attestations kept."""

import json

from gangline.build.builders.recipe import Recipe
from gangline.build.builders.workspace import BuildWorkspace
from gangline.errors import BuildError


class BuildKit:
    """Builds with buildctl, on the daemon that `BUILDKIT_HOST` names."""

    name = "buildkit"

    def __init__(self, *, tls_folder: str | None) -> None:
        self._tls_folder = tls_folder

    def build(self, recipe: Recipe, workspace: BuildWorkspace) -> str:
        context = workspace.context(recipe)
        metadata = workspace.folder / "metadata.json"
        with workspace.docker_config(recipe) as config:
            command = build_command(
                recipe, str(context), pip_config=str(workspace.pip_config()), metadata=str(metadata),
                tls_folder=self._tls_folder,
            )  # fmt: skip
            workspace.run(command, env={"DOCKER_CONFIG": str(config)})
        try:
            return str(json.loads(metadata.read_bytes())["containerimage.digest"])
        except (OSError, ValueError, KeyError) as error:
            raise BuildError(f"buildctl wrote no digest of {recipe.target}: {error}") from error


def build_command(recipe: Recipe, context: str, *, pip_config: str, metadata: str, tls_folder: str | None) -> list[str]:
    """Build and push of `recipe`; `metadata` is the file that gets the digest."""
    cache = f"type=registry,ref={recipe.image.tagged('cache')}"
    return [
        "buildctl", *(["--tlsdir", tls_folder] if tls_folder else []),
        "build", "--progress", "plain", "--frontend", "dockerfile.v0",
        "--local", f"context={context}", "--local", f"dockerfile={context}",
        "--secret", f"id=pip,src={pip_config}", "--opt", "filename=Dockerfile", "--opt", f"platform={recipe.platform}",
        "--opt", f"build-arg:BASE_IMAGE={recipe.base}", "--opt", "attest:sbom=", "--opt", "attest:provenance=mode=max",
        "--import-cache", cache, "--export-cache", f"{cache},mode=max",
        "--output", f"type=image,name={recipe.target},push=true", "--metadata-file", metadata,
    ]  # fmt: skip

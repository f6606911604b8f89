"""Docker on a workstation: build, push, and the digest that the push returned."""

import json
import subprocess

from gangline.build.builders.recipe import Recipe
from gangline.build.builders.workspace import BuildWorkspace
from gangline.errors import BuildError


class Docker:
    """Builds with the docker command."""

    name = "docker"

    def build(self, recipe: Recipe, workspace: BuildWorkspace) -> str:
        context = workspace.context(recipe)
        workspace.run(build_command(recipe, str(context), pip_config=str(workspace.pip_config())))
        with workspace.docker_config(recipe) as config:
            workspace.run(["docker", "--config", str(config), "push", "--quiet", str(recipe.target)])
        return _pushed_digest(recipe, workspace)


def build_command(recipe: Recipe, context: str, *, pip_config: str) -> list[str]:
    """Build of `recipe` from the folder `context`."""
    return [
        "docker", "build", "--file", f"{context}/Dockerfile", "--platform", str(recipe.platform),
        "--secret", f"id=pip,src={pip_config}", "--build-arg", f"BASE_IMAGE={recipe.base}",
        "--tag", str(recipe.target), context,
    ]  # fmt: skip


def _pushed_digest(recipe: Recipe, workspace: BuildWorkspace) -> str:
    """Docker knows it by repository: the tag may have moved since, the digest of our push has not."""
    command = ["docker", "image", "inspect", "--format", "{{json .RepoDigests}}", str(recipe.target)]
    done = subprocess.run(command, env=workspace.program_environ(), capture_output=True, check=False, timeout=60)
    try:
        known = [str(each) for each in json.loads(done.stdout)]
    except (ValueError, TypeError) as error:
        raise BuildError(
            f"docker image inspect {recipe.target}: wanted digests, found {done.stderr[:300]!r}"
        ) from error
    ours = [each.partition("@")[2] for each in known if each.startswith(f"{recipe.image.name}@")]
    if not ours:
        raise BuildError(f"docker pushed {recipe.target} but has no digest of it, only {known}")
    return ours[0]

"""buildah on a CI host: no daemon, chroot isolation, the digest from the push itself."""

import secrets

from gangline.build.builders.recipe import Recipe
from gangline.build.builders.workspace import BuildWorkspace
from gangline.build.image_registry.reference import is_loopback


class Buildah:
    """Builds with buildah, which needs no daemon."""

    name = "buildah"

    def build(self, recipe: Recipe, workspace: BuildWorkspace) -> str:
        context = workspace.context(recipe)
        digest_file = workspace.folder / "digest"
        local = f"localhost/build-{secrets.token_hex(6)}:{recipe.tag}"
        with workspace.docker_config(recipe) as config:
            authfile = str(config / "config.json")
            workspace.run(
                build_command(
                    recipe, str(context), local=local, authfile=authfile, pip_config=str(workspace.pip_config())
                )
            )
            try:
                workspace.run(push_command(recipe, local=local, authfile=authfile, digest_file=str(digest_file)))
            finally:
                workspace.run(["buildah", "rmi", "--force", local])
        return digest_file.read_text().strip()


def build_command(recipe: Recipe, context: str, *, local: str, authfile: str, pip_config: str) -> list[str]:
    """Build of `recipe` from the folder `context` into the local image `local`."""
    return [
        "buildah", "build", "--isolation", "chroot", "--format", "oci", "--timestamp", "0",
        f"--tls-verify={_verified(recipe.base.host)}", "--authfile", authfile, "--platform", str(recipe.platform),
        "--secret", f"id=pip,src={pip_config}", "--build-arg", f"BASE_IMAGE={recipe.base}",
        "--file", f"{context}/Dockerfile", "--tag", local, context,
    ]  # fmt: skip


def push_command(recipe: Recipe, *, local: str, authfile: str, digest_file: str) -> list[str]:
    """Push of the image `local`, whose digest is written to `digest_file`."""
    return [
        "buildah", "push", f"--tls-verify={_verified(recipe.image.host)}", "--authfile", authfile,
        "--digestfile", digest_file, local, f"docker://{recipe.target}",
    ]  # fmt: skip


def _verified(host: str) -> str:
    """TLS is left out on loopback alone."""
    return "false" if is_loopback(host) else "true"

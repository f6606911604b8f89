"""Builders of our Dockerfile: docker on a workstation, buildah on a CI host, BuildKit on a cluster.

Docker knows the digest that its push returned. buildah needs no daemon, works in chroot isolation, and its push writes
the digest itself. `buildctl` talks to a daemon over mTLS; its cache is in the registry, and its attestations are kept.
"""

import json
import secrets
import subprocess

from gangline.build.builders.recipe import Recipe
from gangline.build.builders.workspace import BuildWorkspace
from gangline.build.image_registry.reference import is_loopback
from gangline.errors import BuildError


class Docker:
    """Builds with the docker command."""

    name = "docker"

    def build(self, recipe: Recipe, workspace: BuildWorkspace) -> str:
        context = workspace.context(recipe)
        workspace.run(docker_build(recipe, str(context), pip_config=str(workspace.pip_config())))
        with workspace.docker_config(recipe) as config:
            workspace.run(["docker", "--config", str(config), "push", "--quiet", str(recipe.target)])
        return _pushed_digest(recipe, workspace)


def docker_build(recipe: Recipe, context: str, *, pip_config: str) -> list[str]:
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
                buildah_build(
                    recipe, str(context), local=local, authfile=authfile, pip_config=str(workspace.pip_config())
                )
            )
            try:
                workspace.run(buildah_push(recipe, local=local, authfile=authfile, digest_file=str(digest_file)))
            finally:
                workspace.run(["buildah", "rmi", "--force", local])
        return digest_file.read_text().strip()


def buildah_build(recipe: Recipe, context: str, *, local: str, authfile: str, pip_config: str) -> list[str]:
    """Build of `recipe` from the folder `context` into the local image `local`."""
    return [
        "buildah", "build", "--isolation", "chroot", "--format", "oci", "--timestamp", "0",
        f"--tls-verify={_verified(recipe.base.host)}", "--authfile", authfile, "--platform", str(recipe.platform),
        "--secret", f"id=pip,src={pip_config}", "--build-arg", f"BASE_IMAGE={recipe.base}",
        "--file", f"{context}/Dockerfile", "--tag", local, context,
    ]  # fmt: skip


def buildah_push(recipe: Recipe, *, local: str, authfile: str, digest_file: str) -> list[str]:
    """Push of the image `local`, whose digest is written to `digest_file`."""
    return [
        "buildah", "push", f"--tls-verify={_verified(recipe.image.host)}", "--authfile", authfile,
        "--digestfile", digest_file, local, f"docker://{recipe.target}",
    ]  # fmt: skip


def _verified(host: str) -> str:
    """TLS is left out on loopback alone."""
    return "false" if is_loopback(host) else "true"


class BuildKit:
    """Builds with buildctl, on the daemon that `BUILDKIT_HOST` names."""

    name = "buildkit"

    def __init__(self, *, tls_folder: str | None) -> None:
        self._tls_folder = tls_folder

    def build(self, recipe: Recipe, workspace: BuildWorkspace) -> str:
        context = workspace.context(recipe)
        metadata = workspace.folder / "metadata.json"
        with workspace.docker_config(recipe) as config:
            command = buildctl_build(
                recipe, str(context), pip_config=str(workspace.pip_config()), metadata=str(metadata),
                tls_folder=self._tls_folder,
            )  # fmt: skip
            workspace.run(command, env={"DOCKER_CONFIG": str(config)})
        try:
            return str(json.loads(metadata.read_bytes())["containerimage.digest"])
        except (OSError, ValueError, KeyError) as error:
            raise BuildError(f"buildctl wrote no digest of {recipe.target}: {error}") from error


def buildctl_build(
    recipe: Recipe, context: str, *, pip_config: str, metadata: str, tls_folder: str | None
) -> list[str]:
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

"""What `gangline emit kserve` writes: the objects that serve one published version on a cluster with KServe."""

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from gangline.errors import ConfigError, IntegrityError
from gangline.line.gangs.launchers import open_cluster
from gangline.line.results.served_version import find_version, require_verified
from gangline.registry.model_files import CONFIG
from gangline.registry.versions import Version
from gangline.signing.keys import trusted_keys
from gangline.spec.config.site import Site
from gangline.storage.objects.protocol import ObjectStore, get_bounded

_MOST_CONFIG_BYTES = 4 << 20
_UNSAFE = frozenset({".bin", ".ckpt", ".pkl", ".pt", ".pth"})
"""Endings of files that are unpickled when they are opened."""


def emit_inference_service(
    target: str, *, store: ObjectStore, site: Site, environ: Mapping[str, str], check: bool = False
) -> str:
    """The objects that serve `target`, as YAML for `kubectl apply`, in the order of creation.

    The version is named by its number, so that all replicas of a revision answer alike, also those that start after an
    alias moved.

    Args:
        target: `MODEL`, its newest version; `MODEL@ALIAS` or `MODEL/VERSION`.
        store: Where the version is.
        site: With `[kserve]`.
        environ: For trusted keys and kubeconfig.
        check: Let the API server validate both objects by a dry run.

    Raises:
        UsageError: There is no such version.
        IntegrityError: The alias is not signed by a trusted key, or a document is not what it should be.
        ConfigError: Nothing here can serve the version, the site lacks a key, or the API server refuses an object.
    """
    try:
        from gangline.launch.kubernetes.objects import kserve
        from gangline.launch.kubernetes.objects.labels import path_of
        from gangline.launch.kubernetes.objects.manifest import to_yaml
    except ModuleNotFoundError as error:
        raise ConfigError("writing YAML needs a package: pip install 'gangline[kubernetes]'") from error

    keys = trusted_keys(site, environ)
    named = find_version(target, store)
    require_verified(target, named.checks(keys))
    version = named.version
    served = kserve.ServedVersion(
        name=version.model if named.alias is None else f"{version.model}-{named.alias.alias}",
        model=version.model,
        version=version.version,
        commit=version.commit,
        hugging_face=_hugging_face(version, _config(version, store)),
    )
    objects = kserve.serving_objects(served, site=site, keys={key_id: key.pem for key_id, key in keys.items()})
    if check:
        from gangline.launch.kubernetes.client.api import ApiConflict

        api = open_cluster(site, environ)
        for each in objects:
            with suppress(ApiConflict):
                api.create(path_of(each), each, dry_run=True)
    return kserve.heading(served, site) + to_yaml(objects)


def _config(version: Version, store: ObjectStore) -> dict[str, Any]:
    """`config.json` of the version; its signature is checked in the pod, its digest here."""
    file = next((model_file for model_file in version.files if model_file.path == CONFIG), None)
    if file is None:
        raise IntegrityError(f"{version.key} lists no {CONFIG}; publish it again")
    blob = get_bounded(store, file.key, most_bytes=_MOST_CONFIG_BYTES)
    if blob is None or sha256(blob.data).hexdigest() != file.sha256:
        raise IntegrityError(f"{file.key} is not the file that {version.key} lists")
    plain = json.loads(blob.data)
    if not isinstance(plain, dict):
        raise IntegrityError(f"{file.key}: wanted a JSON object")
    return plain


def _hugging_face(version: Version, config: Mapping[str, Any]) -> str | None:
    """Folder of a language model in the version; None: a task or a handler answers.

    Raises:
        ConfigError: Neither is there, or a file would be unpickled.
    """
    if not version.of_program or (config.get("infer") or {}).get("handler"):
        return None
    paths = [PurePosixPath(file.path) for file in version.files]
    weights = {str(path.parent) for path in paths if path.suffix == ".safetensors"}
    folders = sorted(str(path.parent) for path in paths if path.name == CONFIG and str(path.parent) in weights - {"."})
    if len(folders) != 1:
        raise ConfigError(
            f"{version.model} {version.version} has files of a program: wanted infer.handler in its line.toml, or one"
            f" folder of save_pretrained in publish.files, found {len(folders)} of them"
        )
    unsafe = [str(path) for path in paths if str(path.parent) == folders[0] and path.suffix in _UNSAFE]
    if unsafe:
        raise ConfigError(
            f"{version.model} {version.version}: {unsafe[0]} would be unpickled; publish safetensors alone"
        )
    return folders[0]

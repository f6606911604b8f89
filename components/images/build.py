"""Builds one of the images beside this file for a site: `python components/images/build.py line --lock ... --base ...`.

The same way as the build stage goes: built once by its key, pushed, signed, written down in the site's store.
"""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from gangline.build.builders import open_builder
from gangline.build.builders.recipe import make_recipe
from gangline.build.image_store import ImageStore
from gangline.build.images import build_image
from gangline.errors import GanglineError
from gangline.git.repository import Repository
from gangline.signing.keys import signing_key, trusted_keys
from gangline.spec.config.load import load_site
from gangline.storage.site_paths import open_site_store

HERE = Path(__file__).resolve().parent
NAMES = sorted(path.stem for path in HERE.glob("*.Dockerfile"))


def main(words: list[str] | None = None) -> int:
    asked = _parser().parse_args(words)
    try:
        sys.stdout.write(f"{build(asked)}\n")
    except GanglineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def build(asked: argparse.Namespace) -> str:
    """Reference by digest of the image that `asked` names."""
    environ = dict(os.environ)
    site = load_site(asked.site, environ=environ)
    repository = Repository.at(HERE)
    dockerfile = (HERE / f"{asked.name}.Dockerfile").read_bytes()
    recipe = replace(make_recipe(asked.lock.read_bytes(), base=asked.base, image=asked.image), dockerfile=dockerfile)
    office = ImageStore(
        store=open_site_store(Path.cwd(), site, environ),
        key=signing_key(site, environ),
        trusted=trusted_keys(site, environ),
        environ=environ,
    )
    builder = open_builder(asked.builder, environ)
    return build_image(recipe, builder=builder, office=office, commit=repository.commit()).reference


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Build and sign an image of gangline.")
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--lock", type=Path, required=True, help="hashed requirements")
    parser.add_argument(
        "--base", required=True, help="NAME@sha256:DIGEST of an image with Python, venv and, for line, git"
    )
    parser.add_argument("--image", required=True, help="HOST/REPOSITORY to push to")
    parser.add_argument("--builder", default="buildah", choices=["buildah", "buildkit", "docker"])
    parser.add_argument("--site", type=Path, default=None, help="site.toml; else as gangline finds it")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())

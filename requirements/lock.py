"""Write the hashed locks beside this file from pyproject.toml: names, versions and hashes, never addresses."""

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
UV = HERE.parent / ".venv" / "bin" / "uv"
COMMON = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
PROJECT = ["pyproject.toml", "--no-emit-package", "gangline", "--no-emit-index-url"]
BUILD = "hatchling\neditables\n"
"""What installs gangline itself; pip would fetch it unhashed otherwise."""


def lock(name: str, *arguments: str, text: str = "") -> None:
    command = [UV, "pip", "compile", *arguments, *COMMON, "-o", HERE / f"{name}.txt"]
    subprocess.run(command, cwd=HERE.parent, input=text, text=True, check=True)


if __name__ == "__main__":
    lock("bootstrap", "-", text="uv\n")
    lock("dev", *PROJECT, "--extra", "dev")
    extras = [word for extra in ("train", "publish", "s3", "serve") for word in ("--extra", extra)]
    lock("run", *PROJECT, "-", *extras, "-c", "requirements/dev.txt", text=BUILD)

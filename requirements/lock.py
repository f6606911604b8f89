"""Write the hashed locks beside this file from pyproject.toml: names, versions and hashes, never addresses."""

import subprocess
import tempfile
from pathlib import Path

from install import TORCH_FAMILY, entries

HERE = Path(__file__).resolve().parent
UV = HERE.parent / ".venv" / "bin" / "uv"
COMMON = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
PROJECT = ["pyproject.toml", "--no-emit-package", "gangline", "--no-emit-index-url"]
BUILD = "hatchling\neditables\n"
"""What installs gangline itself; pip would fetch it unhashed otherwise."""
OTHER_TORCHES = ("2.11", "2.13")
"""That `TORCH_VERSION` takes besides the newest: the oldest that gangline works with, and one between."""


def lock(name: str, *arguments: str, text: str = "") -> None:
    compile_into(HERE / f"{name}.txt", *arguments, text=text)


def lock_torch(version: str) -> None:
    """What differs from dev.txt with that torch: itself, its libraries, and whatever it wants older."""
    dev = HERE / "dev.txt"
    with tempfile.TemporaryDirectory() as scratch:
        whole, demand = Path(scratch) / "whole.txt", Path(scratch) / "demand.txt"
        whole.write_text(dev.read_text())  # uv keeps these versions wherever it can
        demand.write_text(f"torch=={version}.*\n")
        compile_into(whole, *PROJECT, "--extra", "dev", "-c", str(demand))
        known = {*entries(dev)}
        found = [each for each in entries(whole) if TORCH_FAMILY.match(each) or each not in known]
    (HERE / f"torch-{version}.txt").write_text("".join(found))


def compile_into(file: Path, *arguments: str, text: str = "") -> None:
    command = [UV, "pip", "compile", *arguments, *COMMON, "-o", file]
    subprocess.run(command, cwd=HERE.parent, input=text, text=True, check=True)


if __name__ == "__main__":
    lock("bootstrap", "-", text="uv\n")
    lock("dev", *PROJECT, "--extra", "dev")
    extras = [word for extra in ("train", "publish", "s3", "serve") for word in ("--extra", extra)]
    lock("run", *PROJECT, "-", *extras, "-c", "requirements/dev.txt", text=BUILD)
    lock("infer", *PROJECT, "-", "--extra", "infer", text=f"{BUILD}tritonclient[http]==2.73.0\n")  # its tests' client
    extras = [word for extra in ("infer", "publish", "s3") for word in ("--extra", extra)]
    lock("infer-image", *PROJECT, *extras, "-c", "requirements/infer.txt")  # it verifies, too, with a store of S3
    extras = [word for extra in ("train", "s3", "federated") for word in ("--extra", extra)]
    lock("federation-image", *PROJECT, *extras, "-c", "requirements/dev.txt")
    for each in OTHER_TORCHES:
        lock_torch(each)
    server = HERE.parent / "tests" / "tools" / "mlflow" / "requirements.txt"
    compile_into(server, "-", text="mlflow==3.17.2\n")

"""Fetch the definitions of `pins.toml` as Go modules, verify each against its SHA-256, write them into a folder."""

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

PINS = Path(__file__).with_name("pins.toml")


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit("usage: fetch.py FOLDER")
    for pin in tomllib.loads(PINS.read_text())["definition"]:
        data = verified(pin)
        path = Path(arguments[0]) / f"{pin['project']}-{pin['version']}" / Path(pin["file"]).name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        sys.stdout.write(f"{path}  {len(data):,} bytes, verified\n")


def verified(pin: dict[str, Any]) -> bytes:
    """The pinned file, out of Go's own cache of modules, if it is the one that was pinned."""
    command = ["go", "mod", "download", "-json", f"{pin['module']}@{pin['version']}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    data = (Path(json.loads(done.stdout)["Dir"]) / pin["file"]).read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != pin["sha256"]:
        sys.exit(f"{pin['file']} of {pin['version']}: wanted sha256 {pin['sha256']}, found {found}; not written")
    return data


if __name__ == "__main__":
    main(sys.argv[1:])

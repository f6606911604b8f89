"""What a Jenkins is given by its administrator: the library with the pipeline, the pods and the settings.

They lie in `jenkins/` of the checkout that this package was imported from, or in its wheel.
"""

from pathlib import Path

import gangline
from gangline.errors import ConfigError

_PACKAGE = Path(str(gangline.__file__)).parent
_PIPELINE = "vars/gangline.groovy"
_KINDS = {".groovy", ".txt", ".yaml"}


def pipeline() -> str:
    """The same for every model repository."""
    return (_folder() / _PIPELINE).read_text("utf-8")


def jenkins_files() -> dict[str, str]:
    """Path to text, all below `jenkins/`: the library's repository is any that holds this folder."""
    folder = _folder()
    found = sorted(path for path in folder.rglob("*") if path.suffix in _KINDS)
    return {f"jenkins/{path.relative_to(folder).as_posix()}": path.read_text("utf-8") for path in found}


def _folder() -> Path:
    candidates = (_PACKAGE.parents[1] / "jenkins", _PACKAGE / "definitions" / "jenkins")
    found = next((each for each in candidates if (each / _PIPELINE).is_file()), None)
    if found is None:
        looked = " or ".join(map(str, candidates))
        raise ConfigError(f"wanted the files for Jenkins in {looked}, found none; install gangline anew")
    return found

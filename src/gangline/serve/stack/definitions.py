"""Where rules and boards lie: in the checkout this package was imported from, else the copy in the wheel."""

from pathlib import Path

import gangline
from gangline.errors import ConfigError

_PACKAGE = Path(str(gangline.__file__)).parent


def monitoring_folder() -> Path:
    """Raises ConfigError where this installation has none."""
    candidates = (_PACKAGE.parents[1] / "monitoring", _PACKAGE / "definitions" / "monitoring")
    found = next((each for each in candidates if (each / "grafana" / "dashboards").is_dir()), None)
    if found is None:
        looked = ", ".join(map(str, candidates))
        raise ConfigError(f"wanted a folder with Grafana's boards, found none among {looked}; install gangline again")
    return found

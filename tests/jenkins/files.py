"""Where the files for Jenkins lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "jenkins"
JENKINSFILE = ROOT / "Jenkinsfile"
PLUGINS = ROOT / "casc" / "plugins.txt"
CONTROLLER = ROOT / "casc" / "jenkins.yaml"
VARS = {path.stem: path for path in sorted((ROOT / "vars").glob("*.groovy"))}
AGENTS = {path.stem: path for path in sorted((ROOT / "agents").glob("*.yaml"))}

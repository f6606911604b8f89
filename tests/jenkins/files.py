"""Where the files for Jenkins lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "jenkins"
GUIDE = ROOT.parent / "docs" / "guides" / "jenkins.md"
PIPELINE = ROOT / "vars" / "gangline.groovy"
PLUGINS = ROOT / "casc" / "plugins.txt"
CONTROLLER = ROOT / "casc" / "jenkins.yaml"
PODS = ROOT / "pods" / "cloud.yaml"
PLAIN = ROOT / "plain" / "agent.yaml"
"""Each the second file of a controller's configuration: pods, or a machine."""
VARS = {path.stem: path for path in sorted((ROOT / "vars").glob("*.groovy")) if path != PIPELINE}
"""Steps of the pipeline."""
AGENTS = {path.stem: path for path in sorted((ROOT / "agents").glob("*.yaml"))}

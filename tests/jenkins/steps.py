"""What a pipeline may say: steps with the plugin that has each, directives, and the little Groovy that is left.

Everything else is refused. A list of what is dangerous is never complete; this one is.
"""

import re

from tests.jenkins.files import PLUGINS, VARS

CORE = "core"
"""Has what no plugin needs to bring."""
STEPS = {
    "agent": "workflow-durable-task-step",
    "archiveArtifacts": "workflow-basic-steps",
    "checkout": "workflow-scm-step",
    "container": "kubernetes",
    "echo": "workflow-basic-steps",
    "error": "workflow-basic-steps",
    "input": "pipeline-input-step",
    "junit": "junit",
    "node": "workflow-durable-task-step",
    "nonresumable": "workflow-basic-steps",
    "retry": "workflow-basic-steps",
    "scmGit": "git",
    "sh": "workflow-durable-task-step",
    "sleep": "workflow-basic-steps",
    "withEnv": "workflow-basic-steps",
}
"""Step to the plugin that has it."""
OPTIONS = {
    "buildDiscarder": CORE,
    "disableRestartFromStage": "pipeline-model-definition",
    "durabilityHint": "workflow-job",
    "logRotator": CORE,
    "skipDefaultCheckout": "pipeline-model-definition",
    "timeout": "workflow-basic-steps",
}
PARAMETERS = {"booleanParam": CORE}
SECTIONS = ("agent", "options", "parameters", "stages", "post")
"""In this order; nothing else stands in a pipeline, so no environment, tools or libraries."""
ENDINGS = ("aborted", "cleanup")
OWN = frozenset(VARS)
METHODS = {"trim", "tokenize", "first", "last", "contains", "join", "startsWith", "toInteger", "hasProperty"}
"""Of strings and lists; and of what `scm` is, without a branch another class."""
PROPERTIES = {
    "env": {"APPROVED", "AWAY", "CHANGE_FORK", "CHANGE_URL", "ENDS_IN", "GANGLINE_AGENTS", "RUN", "WHY"},
    "currentBuild": {"description", "displayName", "result"},
    "source": {"branches", "extensions", "userRemoteConfigs"},
    "remote": {"url", "credentialsId", "refspec"},
}
"""What is read or set of the build; words of strangers are never among them."""
TYPES = {"String", "int", "boolean", "List", "Integer", "Closure", "def", "Exception", "IOException"}
WORDS = {
    "if", "else", "while", "for", "return", "in", "try", "catch", "true", "false", "null", "scm", "env", "currentBuild",
}  # fmt: skip
NODE = re.compile(r"gangline-(\$\{kind\}|line|build|check)")
SHOWN = {"env.RUN", "env.CHANGE_URL"}
"""Of what is not a local: may be put into a message. The forge makes the address of a change from its number."""


def pinned() -> dict[str, str]:
    """Plugin to its version, as plugins.txt has them."""
    lines = [line for line in PLUGINS.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(":", 1) for line in lines)

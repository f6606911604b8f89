"""The controller as code: builds nothing itself, trusts no fork, knows no secret but by file."""

import os
import re
import subprocess
from string import Template

import pytest
import yaml
from tests.jenkins.compiler import groovy_home, java_home
from tests.jenkins.files import AGENTS, CONTROLLER, PIPELINE, PLAIN, PODS, VARS
from tests.jenkins.groovy import blocks, tokens
from tests.jenkins.seeded import said, script_of_the_job, seeded_job, seeded_scripts
from tests.jenkins.steps import pinned

TEXT = CONTROLLER.read_text()
CONFIG = yaml.safe_load(TEXT)
AGENT_CONFIGS = {path.parent.name: yaml.safe_load(path.read_text()) for path in (PODS, PLAIN)}
NEEDED = {
    "jobs": "job-dsl",
    "credentials": "credentials",
    "unclassified": "pipeline-groovy-lib",
    "security": "git-client",
}
"""Root of the configuration to the plugin that understands it; `jenkins` is its own."""


def strings(value):
    if isinstance(value, dict):
        return [text for each in value.values() for text in strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.row("P9")
def test_nothing_is_built_on_the_controller():
    assert CONFIG["jenkins"]["numExecutors"] == 0
    assert CONFIG["jenkins"]["mode"] == "EXCLUSIVE"
    assert CONFIG["jenkins"]["markupFormatter"] == "plainText"


@pytest.mark.row("P9")
def test_the_steps_come_from_one_library_at_a_tag_that_no_pipeline_may_change():
    (library,) = CONFIG["unclassified"]["globalLibraries"]["libraries"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", library["defaultVersion"])
    assert library["implicit"] is True
    assert library["allowVersionOverride"] is False
    assert library["retriever"]["modernSCM"]["libraryPath"] == "jenkins/"
    assert library["retriever"]["modernSCM"]["scm"]["git"]["traits"] == ["gitTagDiscovery"]


@pytest.mark.parametrize("key", ["password", "secret", "privateKey", "appID"])
def test_secrets_come_from_files(key):
    found = re.findall(rf"\b{key}: (.+?)[}}\n]", TEXT)
    assert found
    assert all(re.match(r'"\$\{readFile:/run/secrets/[a-z.-]+', value) for value in found)


@pytest.mark.row("P9")
def test_no_one_but_the_administrator_may_change_or_replay_a_job_or_see_credentials():
    roles = CONFIG["jenkins"]["authorizationStrategy"]["roleBased"]["roles"]
    granted = {(role["name"], right) for kind in roles.values() for role in kind for right in role["permissions"]}
    assert {right for name, right in granted if name != "admin"} == {
        "Overall/Read", "Job/Read", "Job/Build", "Job/Cancel",
    }  # fmt: skip
    assert "anonymous" not in TEXT
    assert CONFIG["jenkins"]["securityRealm"]["local"]["allowsSignup"] is False
    assert {"group": "gangline-maintainers"} in roles["items"][0]["entries"]


@pytest.mark.row("P5")
def test_one_job_is_seeded_and_trusts_no_fork():
    _, script = seeded_scripts()
    (seeded,) = blocks(tokens(script))
    assert (seeded.name, seeded.arguments[0].value) == ("multibranchPipelineJob", "gangline")
    (source,) = seeded.named("branchSources")[0].named("branchSource")[0].named("source")[0].named("github")
    (fork,) = source.named("traits")[0].named("gitHubForkDiscovery")
    assert [word.text for word in fork.named("trust")[0].inside] == ["gitHubTrustNobody", "(", ")"]
    assert script.count("strategyId(2)") == 2, "a change is built as it was pushed: a merge made here is another commit"
    assert "interval('1d')" in script


@pytest.mark.row("P9")
def test_no_branch_and_no_fork_says_what_its_builds_do():
    """Its Jenkinsfile is not looked for: each build runs the one line that stands here, which the library answers."""
    (factory,) = seeded_job().named("factory")[0].blocks
    assert factory.name == "inlineDefinitionBranchProjectFactory"
    assert (said(factory, "markerFile"), script_of_the_job()) == ("line.toml", f"{PIPELINE.stem}()")
    assert "sandbox(true)" in seeded_scripts()[1]
    assert not re.search("(?i)scriptPath|workflowBranchProjectFactory|readTrusted", TEXT)


@pytest.mark.row("P9")
def test_pods_with_secrets_are_for_the_seeded_job_alone():
    """`node` of their labels and `podTemplate` are refused to every other job, whatever pod that asks for."""
    ((cloud,),) = [each.values() for each in AGENT_CONFIGS["pods"]["jenkins"]["clouds"]]
    assert cloud["usageRestricted"] is True
    (allowed,) = seeded_job().named("properties")[0].blocks
    assert " ".join(word.text for word in allowed.inside) == f"permittedClouds ( [ '{cloud['name']}' ] )"
    assert (allowed.name, len(CONFIG["jobs"])) == ("kubernetes", 2)
    assert "Job" not in seeded_scripts()[0]


@pytest.mark.row("P9")
def test_nothing_that_a_repository_gets_is_a_jenkinsfile():
    from gangline.cli.templates import TEMPLATES, render

    written = [path for name in TEMPLATES for path in render(name, name="demo")]
    assert not [path for path in written if "jenkins" in path.lower()]


def test_the_webhook_is_signed():
    (hook,) = CONFIG["unclassified"]["gitHubPluginConfig"]["hookSecretConfigs"]
    kinds = [kind for each in CONFIG["credentials"]["system"]["domainCredentials"] for kind in each["credentials"]]
    (secret,) = [one["string"] for one in kinds if "string" in one]
    assert (secret["id"], secret["scope"]) == (hook["credentialsId"], "SYSTEM")


def test_what_the_configuration_speaks_of_is_installed():
    assert set(CONFIG) - {"jenkins"} == set(NEEDED)
    wanted = {
        *NEEDED.values(),
        "configuration-as-code",
        "role-strategy",
        "kubernetes",
        "github",
        "github-branch-source",
        "inline-pipeline",
        "skip-notifications-trait",
    }
    assert wanted <= set(pinned())


@pytest.mark.parametrize("path", [CONTROLLER, PODS, PLAIN], ids=lambda path: path.parent.name)
def test_variables_are_those_that_the_head_of_the_file_names(path):
    config = yaml.safe_load(path.read_text())
    used = {name for text in strings(config) for name in re.findall(r"\$\{([A-Z_]+)\}", text)}
    head = path.read_text().split("\njenkins:")[0]
    named = set(re.findall(r"\b[A-Z]+_[A-Z]+(?:_[A-Z]+)?\b", head))
    assert used == named - {"CASC_STRICT_SECRET", "CASC_JENKINS_CONFIG", "GANGLINE_SITE"}


VARIABLES = ("JENKINS_URL", "FORGE_OWNER", "FORGE_REPOSITORY", "LIBRARY_REPOSITORY")


@pytest.mark.tools
@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (seeded_scripts()[0], ()),
        (seeded_scripts()[0], ("FORGE_OWNER",)),
        (seeded_scripts()[0], ("JENKINS_URL", "LIBRARY_REPOSITORY")),
        (AGENT_CONFIGS["plain"]["jobs"][0]["script"], ()),
        (AGENT_CONFIGS["plain"]["jobs"][0]["script"], ("PLAIN_AGENT_HOME",)),
    ],
    ids=["controller", "controller-1", "controller-2", "plain", "plain-1"],
)
def test_a_jenkins_without_its_variables_does_not_start_and_names_them(tmp_path, text, missing):
    """The script as the configuration plugin hands it to Job DSL: a variable that is not set is an empty text."""
    given = {name: "" if name in missing else "x" for name in (*VARIABLES, "PLAIN_AGENT_HOME")}
    script = tmp_path / "refuse.groovy"
    script.write_text(Template(text).substitute(given))
    environ = {**os.environ, "JAVA_HOME": str(java_home()), "GROOVY_HOME": str(groovy_home())}
    done = subprocess.run(
        [groovy_home() / "bin" / "groovy", script], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (not missing), done.stderr
    assert not missing or f"not set in the environment of Jenkins: {', '.join(missing)}" in done.stderr


def test_a_closed_change_takes_its_builds_along():
    (strategy,) = seeded_job().named("orphanedItemStrategy")[0].blocks
    assert strategy.name == "defaultOrphanedItemStrategy"
    assert " ".join(word.text for word in strategy.inside).endswith("abortBuilds ( true )")


def test_the_realm_for_a_start_has_somebody_who_lets_forks_in():
    realm, roles = CONFIG["jenkins"]["securityRealm"]["local"], CONFIG["jenkins"]["authorizationStrategy"]["roleBased"]
    (maintainer,) = [role for role in roles["roles"]["items"] if role["name"] == "maintainer"]
    users = {entry["user"] for entry in maintainer["entries"] if "user" in entry}
    assert users <= {user["id"] for user in realm["users"]}
    assert users
    asked = VARS["gangApprove"].read_text()
    assert all(f"{user}" in re.search(r"submitter: '([^']*)'", asked)[1].split(",") for user in users)


def test_stages_are_drawn():
    assert "pipeline-graph-view" in pinned()


def test_a_plain_agent_has_every_label_and_one_executor():
    plain = AGENT_CONFIGS["plain"]["jenkins"]
    (node,) = [each["permanent"] for each in plain["nodes"]]
    assert node["numExecutors"] == 1
    assert set(node["labelString"].split()) == {f"gangline-{name}" for name in AGENTS}
    assert {"key": "GANGLINE_AGENTS", "value": "plain"} in plain["globalNodeProperties"][0]["envVars"]["env"]


def test_a_controller_has_pods_or_a_machine_and_does_not_start_with_both():
    """Templates of a cloud bear the labels of the machine; a text that two files give differently is a conflict."""
    kinds = {name: {"clouds", "nodes"} & set(config["jenkins"]) for name, config in AGENT_CONFIGS.items()}
    assert kinds == {"pods": {"clouds"}, "plain": {"nodes"}}
    assert not {"clouds", "nodes", "systemMessage"} & set(CONFIG["jenkins"])
    messages = {config["jenkins"]["systemMessage"] for config in AGENT_CONFIGS.values()}
    assert len(messages) == 2


@pytest.mark.row("P9")
def test_agents_call_in_by_web_socket_and_no_further_port_is_open():
    assert CONFIG["jenkins"]["slaveAgentPort"] == -1
    (cloud,) = AGENT_CONFIGS["pods"]["jenkins"]["clouds"]
    assert cloud["kubernetes"]["webSocket"] is True
    (node,) = AGENT_CONFIGS["plain"]["jenkins"]["nodes"]
    assert node["permanent"]["launcher"] == {"inbound": {"webSocket": True}}


def test_jenkins_sends_no_status_to_the_forge():
    """Its own would call what no push starts, and what was superseded, an error of the commit."""
    (source,) = seeded_job().named("branchSources")[0].named("branchSource")[0].named("source")[0].named("github")
    assert "githubSkipNotifications" in [word.text for word in source.named("traits")[0].inside]
    assert "skip-notifications-trait" in pinned()

"""The controller as code: builds nothing itself, trusts no fork, knows no secret but by file."""

import re

import pytest
import yaml
from tests.jenkins.files import CONTROLLER, PIPELINE
from tests.jenkins.groovy import blocks, tokens
from tests.jenkins.seeded import said, script_of_the_job, seeded_job
from tests.jenkins.steps import pinned

TEXT = CONTROLLER.read_text()
CONFIG = yaml.safe_load(TEXT)
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
def test_nobody_but_the_administrator_may_change_or_replay_a_job_or_see_credentials():
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
    (job,) = CONFIG["jobs"]
    (seeded,) = blocks(tokens(job["script"]))
    assert (seeded.name, seeded.arguments[0].value) == ("multibranchPipelineJob", "gangline")
    (source,) = seeded.named("branchSources")[0].named("branchSource")[0].named("source")[0].named("github")
    (fork,) = source.named("traits")[0].named("gitHubForkDiscovery")
    assert [word.text for word in fork.named("trust")[0].inside] == ["gitHubTrustNobody", "(", ")"]
    script = job["script"]
    assert script.count("strategyId(2)") == 2, "a change is built as it was pushed: a merge made here is another commit"
    assert "interval('1d')" in script


@pytest.mark.row("P9")
def test_no_branch_and_no_fork_says_what_its_builds_do():
    """Its Jenkinsfile is not looked for: each build runs the one line that stands here, which the library answers."""
    (factory,) = seeded_job().named("factory")[0].blocks
    assert factory.name == "inlineDefinitionBranchProjectFactory"
    assert (said(factory, "markerFile"), script_of_the_job()) == ("line.toml", f"{PIPELINE.stem}()")
    assert "sandbox(true)" in CONFIG["jobs"][0]["script"]
    assert not re.search("(?i)scriptPath|workflowBranchProjectFactory|readTrusted", TEXT)


@pytest.mark.row("P9")
def test_pods_with_secrets_are_for_the_seeded_job_alone():
    """`node` of their labels and `podTemplate` are refused to every other job, whatever pod that asks for."""
    ((cloud,),) = [each.values() for each in CONFIG["jenkins"]["clouds"]]
    assert cloud["usageRestricted"] is True
    (allowed,) = seeded_job().named("properties")[0].blocks
    assert " ".join(word.text for word in allowed.inside) == f"permittedClouds ( [ '{cloud['name']}' ] )"
    assert (allowed.name, len(CONFIG["jobs"])) == ("kubernetes", 1)


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
    }
    assert wanted <= set(pinned())


def test_variables_are_those_that_the_head_of_the_file_names():
    used = {name for text in strings(CONFIG) for name in re.findall(r"\$\{([A-Z_]+)\}", text)}
    head = TEXT.split("jenkins:")[0]
    assert used == set(re.findall(r"\b[A-Z]+_[A-Z]+\b", head))

"""Pipelines that somebody would like to slip in, after advisories and write-ups of sandbox escapes: all are refused."""

import pytest
from tests.jenkins.files import PIPELINE, VARS
from tests.jenkins.lint import lint_pipeline, lint_step

pytestmark = pytest.mark.row("P9")

ESCAPES = {
    "annotation that fetches code": "@Grab('org.example:owned:1.0') import org.example.Owned",
    "annotation that runs code while compiling": "@groovy.transform.ASTTest(value={assert Jenkins.instance}) def x",
    "annotation behind an escape": "\\u0040Grab('org.example:owned:1.0')",
    "library of somebody else": "@Library('evil@main') _",
    "library step": "library('evil@main')",
    "controller's node": "node('built-in') { sh('id') }",
    "controller's node by its old name": "node('master') { sh('id') }",
    "any node": "node { sh('id') }",
    "node by expression": 'node("${env.LABEL}") { echo(\'x\') }',
    "credentials of others": "env.RUN = credentials('prod-key')",
    "bound credentials": "withCredentials([string(credentialsId: 'prod', variable: 'RUN')]) { echo('x') }",
    "agent with keys": "sshagent(['deploy-key']) { sh('id') }",
    "exit": "System.exit(1)",
    "environment of the controller": "echo(System.getenv('SECRET'))",
    "process": "'id'.execute()",
    "process of a list": "['sh', '-c', 'id'].execute()",
    "evaluate": "evaluate('1 + 1')",
    "shell class": "new GroovyShell().evaluate('1')",
    "eval class": "Eval.me('1 + 1')",
    "load": "load('owned.groovy')",
    "jenkins object": "Jenkins.instance.getItemByFullName('x').delete()",
    "hudson object": "hudson.model.Hudson.instance",
    "class by name": "this.class.classLoader.loadClass('java.lang.Runtime')",
    "class by literal": "''.class.forName('java.lang.Runtime')",
    "meta class": "String.metaClass.trim = { -> 'owned' }",
    "runtime": "Runtime.runtime.exec('id')",
    "file of the controller": "new File('/var/jenkins_home/secrets/master.key').text",
    "constructor by cast": "def f = ['/etc/passwd'] as File",
    "implicit cast": "File f = ['/etc/passwd']",
    "cast by brackets": "def f = (File) ['/etc/passwd']",
    "method pointer": "def f = this.&evaluate",
    "method by string": "this.'evaluate'('1')",
    "method by interpolated name": 'this."${name}"(\'1\')',
    "property by string": "env.'SECRET'",
    "property by bracket": "env['SECRET']",
    "spread": "[1]*.toString()",
    "closure's delegate": "body.delegate = this",
    "raw build": "currentBuild.rawBuild.parent.delete()",
    "binding": "binding.setVariable('sh', { -> 'owned' })",
    "read of a trusted file": "readTrusted('secrets')",
    "write to the workspace": "writeFile(file: 'line.toml', text: 'x')",
    "another job": "build(job: 'deploy')",
    "pod of one's own": "podTemplate(yaml: 'spec: {hostNetwork: true}') { echo('x') }",
    "approval of scripts": "properties([parameters([])])",
    "class": "class Owned { Owned() { println('x') } }",
    "import": "import jenkins.model.*",
    "constructor in a default": "def call(x = new Owned()) { }",
    "branch name in a script": 'sh("gangline stage train --run ${env.BRANCH_NAME}")',
    "branch name in a message": 'echo("${env.CHANGE_TITLE}")',
    "script by addition": "sh('gangline ' + env.CHANGE_BRANCH)",
    "script by format": "sh(String.format('gangline %s', env.CHANGE_BRANCH))",
    "script by variable": "def s = 'id'\nsh(s)",
    "script without brackets": "sh 'id'",
    "script of windows": "bat('dir')",
    "letters that look alike": "node('gangline-lin\u0435') { }",
    "right to left": "echo('\u202e')",
    "two statements": "echo('x'); sh('id')",
    "dynamic tuple assignment": "def (a, b) = [System, 1]",
    "label loop": "env.getEnvironment()",
}  # fmt: skip
hostile = pytest.mark.parametrize("snippet", ESCAPES.values(), ids=list(ESCAPES))


@hostile
def test_a_step_with_it_is_refused(snippet):
    text = VARS["gangStage"].read_text()
    first, rest = text.split("    int code = 0\n")
    assert lint_step(text) == []
    assert lint_step(f"{first}    {snippet}\n    int code = 0\n{rest}") != []


@hostile
def test_a_pipeline_with_it_is_refused_wherever_it_is(snippet):
    text = PIPELINE.read_text()
    assert lint_pipeline(f"{snippet}\n{text}") != []
    assert lint_pipeline(f"{text}\n{snippet}\n") != []
    for place in ("gangFollow('gate')", "gangCancel()", "skipDefaultCheckout()"):
        assert place in text
        assert lint_pipeline(text.replace(place, snippet)) != []
        assert lint_pipeline(text.replace(place, f"{place}\n{snippet}\n")) != []


CHANGES = {
    "another agent": ("agent none", "agent any"),
    "an agent of a label": ("agent none", "agent { label 'built-in' }"),
    "a misspelt stage": ("stage('Train')", "stage('Trainz')"),
    "a misspelt section": ("stages {", "stagez {"),
    "a stage less": ("        stage('Gate') { steps { gangFollow('gate') } }\n", ""),
    "stages in another order": ("stage('Gate')", "stage('Prove')"),
    "the command of another stage": ("gangFollow('gate')", "gangFollow('publish')"),
    "two commands": ("gangFollow('gate')", "gangFollow('gate')\n gangFollow('publish')"),
    "nothing to do": ("gangFollow('gate')", ""),
    "a script in a stage": ("gangFollow('gate')", "script { gangFollow('gate') }"),
    "an environment": ("    stages {", "    environment { KEY = 'x' }\n    stages {"),
    "parameters": ("    stages {", "    parameters { string(name: 'RUN') }\n    stages {"),
    "an ending less": ("        aborted { gangCancel() }\n", ""),
    "a condition": ("stage('Publish') {", "stage('Publish') { when { branch('main') }"),
    "another pipeline": ("pipeline {", "pipeline { }\npipeline {"),
    "an open end": ("pipeline {", "pipeline { {"),
}


@pytest.mark.parametrize(("old", "new"), CHANGES.values(), ids=list(CHANGES))
def test_a_pipeline_of_another_shape_is_refused(old, new):
    text = PIPELINE.read_text()
    assert old in text
    assert lint_pipeline(text.replace(old, new, 1)) != []


def test_no_prefix_of_the_pipeline_passes():
    text = PIPELINE.read_text().rstrip()
    assert [size for size in range(0, len(text), 7) if not lint_pipeline(text[:size])] == []


def test_what_is_found_is_named_with_its_line():
    (problem,) = lint_step("/** x */\ndef call() {\n    bat('dir')\n}\n")
    assert str(problem) == "line 3: step that no plugin of ours has: bat"

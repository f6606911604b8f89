"""Our TrainJobs, runtimes and JobSets against the schemas of eight releases: each knows every field of ours."""

import json
import shutil

import jsonschema
import pytest
from tests.launch.kubernetes.crds.trim import FOLDER, JOBSETS, RELEASES, SPELLINGS, sent, trimmed
from tests.launch.kubernetes.gangs import shared_setting

from gangline.launch.kubernetes.objects.manifest import merge
from gangline.launch.kubernetes.objects.trainjob import overriding_trainjob

SCHEMAS = {release: json.loads((FOLDER / f"{release}.json").read_text("utf-8")) for release in RELEASES}


def strict(schema):
    """`schema` that refuses what it does not name, as a server does when asked to be strict."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(value) for name, value in schema.items() if name != "properties"}
    if "properties" in schema:
        found["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
        found.setdefault("additionalProperties", False)
    return found


def objections(thing, release):
    """What a strict server of this release says against `thing`."""
    validator = jsonschema.Draft202012Validator(strict(SCHEMAS[release][thing["kind"]]))
    return [error.message for error in validator.iter_errors(thing)]


@pytest.mark.parametrize("release", RELEASES)
def test_objects_hold_no_field_that_this_release_does_not_know(release):
    things = sent(release)
    assert [objection for thing in things for objection in objections(thing, release)] == []
    ours = {"JobSet"} if release in JOBSETS else {"TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"}
    assert {thing["kind"] for thing in things} == ours


@pytest.mark.parametrize("release", sorted(SPELLINGS))
@pytest.mark.parametrize("spelling", ["podTemplateOverrides", "runtimePatches"])
def test_trainer_knows_one_spelling_alone(release, spelling):
    thing = overriding_trainjob(shared_setting(spelling), "gangline", spelling)
    found = objections(thing, release)
    if SPELLINGS[release] == spelling:
        assert found == []
    else:
        assert any(spelling in each and "unexpected" in each for each in found)


@pytest.mark.parametrize("release", sorted(SPELLINGS))
@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ({"spec": {"suspended": True}}, "Additional properties are not allowed ('suspended' was unexpected)"),
        ({"spec": {"suspend": "yes"}}, "'yes' is not of type 'boolean'"),
        ({"spec": {"runtimeRef": {"name": None}}}, "'name' is a required property"),
    ],
)
def test_schema_refuses_what_a_server_would(release, patch, said):
    trainjob = next(each for each in sent(release) if each["kind"] == "TrainJob")
    assert objections(merge(trainjob, patch), release) == [said]


@pytest.mark.tools
@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed; the schemas come from Go modules")
@pytest.mark.parametrize("release", RELEASES)
def test_schemas_are_those_of_the_release(release):
    again = "if that is meant: python -m tests.launch.kubernetes.crds.trim"
    assert trimmed(release) == SCHEMAS[release], again

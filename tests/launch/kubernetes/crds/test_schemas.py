"""Our TrainJobs, runtimes, JobSets and PodGroups against schemas of nine releases: each knows all fields of ours."""

import json
import shutil

import jsonschema
import pytest
from tests.launch.kubernetes.crds.trim import FOLDER, RELEASES, SPELLINGS, sent, trimmed
from tests.launch.kubernetes.gangs import shared_setting

from gangline.launch.kubernetes.objects.manifest import merge
from gangline.launch.kubernetes.objects.root_objects import overriding_trainjob

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
    ours = {"trainer": {"TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"}, "jobset": {"JobSet"}}
    assert {thing["kind"] for thing in things} == (ours | {"volcano": {"PodGroup"}})[release.partition("-")[0]]


def test_volcano_refuses_a_mode_and_a_size_that_it_does_not_know():
    group = next(each for each in sent("volcano-1.15.1") if "networkTopology" in each["spec"])
    wrong = merge(group, {"spec": {"networkTopology": {"mode": "firm"}, "minMember": "4", "tiles": 2}})
    assert sorted(objections(wrong, "volcano-1.15.1")) == [
        "'4' is not of type 'integer'",
        "'firm' is not one of ['hard', 'soft']",
        "Additional properties are not allowed ('tiles' was unexpected)",
    ]


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

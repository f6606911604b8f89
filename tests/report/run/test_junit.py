"""JUnit: a case per stage and gate, readable by any parser."""

from dataclasses import replace
from xml.etree.ElementTree import fromstring

from tests.report import records

from gangline.report.run.junit import render_junit
from gangline.spec.record import STAGES


def cases(record, suite):
    root = fromstring(render_junit(record).encode())
    return {case.attrib["name"]: case for case in root.iterfind(f"testsuite[@name='gangline.{suite}']/testcase")}


def test_every_stage_and_gate_is_a_case():
    record = records.refused()
    assert tuple(cases(record, "stages")) == STAGES
    assert set(cases(record, "gates")) == {gate.name for gate in record.gates}


def test_a_failed_stage_and_a_refusing_gate_are_failures():
    record = records.refused()
    assert cases(record, "stages")["gate"].find("failure").attrib["type"] == "exit 60"
    assert cases(record, "gates")["quality:eval_loss"].find("failure") is not None
    assert cases(record, "stages")["prove"].find("skipped") is not None


def test_counts_agree_with_the_cases():
    root = fromstring(render_junit(records.refused()).encode())
    for suite in root:
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
        assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))


def test_a_gate_no_one_could_judge_is_skipped():
    assert cases(records.passed(), "gates")["quality:eval_loss"].find("skipped") is not None


def test_characters_that_xml_forbids_are_gone():
    record = records.failed()
    evil = "\x00\x1b[31m]]> <!-- & \ud800"
    stages = {**record.stages, "train": replace(record.stages["train"], message=evil)}
    assert "]]> <!-- &" in cases(replace(record, stages=stages), "stages")["train"].find("failure").text


def test_a_metric_named_as_a_fact_of_the_run_hides_none():
    record = records.refused()
    named = replace(record, metrics={"plan": record.metrics["eval_loss"]}, gates=())
    reported = [
        (each.get("name"), each.get("value")) for each in fromstring(render_junit(named).encode()).iter("property")
    ]
    assert ("plan", record.plan.name) in reported
    assert ("metric:plan", "2.52 nats") in reported
    assert ("band", "2.369 ± 1.6 %") in reported


def test_what_sets_a_run_apart_from_its_commit_is_a_property():
    record = records.passed()
    reported = replace(record, inputs=replace(record.inputs, overrides=("train.steps=1",)))
    found = {
        each.get("name"): each.get("value") for each in fromstring(render_junit(reported).encode()).iter("property")
    }
    assert found["marks"] == "experiment with train.steps · never a base, never published"
    assert 'name="marks"' not in render_junit(record)

"""One push to a real forge; the same numbers on terminal, comment, build server, pipeline, Prometheus and pages."""

from dataclasses import replace

import pytest
from tests.five_surfaces.readers import Seen, disagreements, read_comment, read_prometheus
from tests.five_surfaces.scene import played, read_all

pytestmark = [pytest.mark.tools, pytest.mark.timeout(1200)]  # two runs of three seeds, beside whatever else runs here
METRIC = "accuracy"


@pytest.fixture(scope="module")
def scene(tmp_path_factory, gitea):
    with played(tmp_path_factory.mktemp("scene"), gitea) as found:
        yield found


@pytest.fixture(scope="module")
def seen(scene):
    return read_all(scene, METRIC)


def test_every_surface_shows_the_same_numbers_of_the_pushed_commit(seen):
    assert disagreements(seen) == []


def test_what_they_show_is_what_was_measured_on_the_band_of_the_base(scene, seen):
    record, shown = scene.record, seen["prometheus"]
    metric = record.metrics[METRIC]
    assert float(shown.value) == pytest.approx(metric.value, rel=1e-3)
    assert metric.base_band.origin == scene.base.run.id
    assert metric.base_band.center == scene.base.metrics[METRIC].band.center
    assert float(shown.center) == pytest.approx(metric.base_band.center, rel=1e-3)
    assert (shown.verdict, shown.plan) == (record.run.verdict, record.plan.name)
    assert {kind for kind, _ in shown.gates} == {"budget", "processes", "quality", "reproducible"}
    assert (record.commit.pull_request, record.commit.branch) == (scene.pull_request, "wider")


def test_a_comment_that_is_off_by_a_digit_is_found(scene, seen):
    value = seen["comment"].value
    wrong = value[:-1] + str((int(value[-1]) + 1) % 10)
    doctored = read_comment(scene.texts["comment"].replace(value, wrong), METRIC)
    assert doctored == replace(seen["comment"], value=wrong)
    assert disagreements({**seen, "comment": doctored}) == [f"comment: value {wrong}, not {value}"]


def test_a_series_that_is_off_by_a_digit_is_found(scene, seen):
    def ask(expression):
        found = scene.server.query(expression)
        if expression.startswith("gangline_eval_value") and METRIC in expression:
            return [{**each, "value": [each["value"][0], str(float(each["value"][1]) + 0.001)]} for each in found]
        return found

    doctored: Seen = read_prometheus(ask, scene.record.run.id, METRIC)
    (said,) = disagreements({**seen, "prometheus": doctored})
    assert said.startswith("prometheus: value ")

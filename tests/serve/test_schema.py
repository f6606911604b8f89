"""Requests made from the OpenAPI document, valid and not: never a 5xx, always the shape that it promises."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import checks
from tests.serve.world import world as made

from gangline.serve.app import openapi_document

OPERATIONS = sorted(
    (method.upper(), path)
    for path, operations in openapi_document()["paths"].items()
    for method in operations
    if not path.endswith("/events")  # streams that end with their run; test_api reads them
)


checks.load_all_checks()
CHECKS = [
    checks.CHECKS.get_one(name)
    for name in (
        "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    )
]  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with made(tmp_path_factory.mktemp("world")) as found, found.serving():
        yield found


def strike(served, method, path, *, examples):
    schema = schemathesis.openapi.from_dict(openapi_document())
    operation = schema[path][method]
    headers = {"Authorization": f"Bearer {served.tokens['*', 'admin']}"}
    kinds = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    cases = st.one_of(*(operation.as_strategy(generation_mode=kind) for kind in kinds))

    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        database=None,
    )
    @given(case=cases)
    def run(case):
        if "run" in (case.path_parameters or {}) and len(str(case.path_parameters["run"])) % 2:
            case.path_parameters["run"] = served.run("alpha")
        answer = case.call(base_url=served.url, headers=headers)
        case.validate_response(answer, checks=CHECKS)

    run()


@pytest.mark.row("F3")
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda each: each)
def test_route_keeps_its_schema_whatever_it_is_sent(served, method, path):
    strike(served, method, path, examples=4)


@pytest.mark.slow
@pytest.mark.row("F3")
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda each: each)
def test_route_keeps_its_schema_through_a_thousand_requests(served, method, path):
    strike(served, method, path, examples=1000)

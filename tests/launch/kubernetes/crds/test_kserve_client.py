"""Our InferenceServices against the types of KServe's own Python client, of the release that serves."""

import json
import os
import subprocess

import pytest
from tests.launch.kubernetes.served_versions import KEYS, cases

from gangline.errors import NotInstalledError
from gangline.launch.kubernetes.objects.kserve import serving_objects
from gangline.line.gangs.infer_server import infer_python
from gangline.spec.config.site import Site

pytestmark = pytest.mark.tools
PROGRAM = """
import json, sys
from kserve import V1beta1InferenceService, V1beta1InferenceServiceSpec, V1beta1ModelSpec, V1beta1PredictorSpec
kinds = (V1beta1InferenceService, V1beta1InferenceServiceSpec, V1beta1PredictorSpec, V1beta1ModelSpec)
print(json.dumps([sorted(kind.attribute_map.values()) for kind in kinds]))
"""


@pytest.mark.row("IN6")
def test_the_client_of_this_release_knows_every_field():
    try:
        python = infer_python(Site(), os.environ)
    except NotInstalledError as error:
        pytest.skip(str(error))
    done = subprocess.run([python, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    service, spec, predictor, model = map(set, json.loads(done.stdout.splitlines()[-1]))
    for served, site in cases().values():
        thing = serving_objects(served, site=site, keys=KEYS)[1]
        ours = thing["spec"]["predictor"]
        assert thing.keys() <= service
        assert thing["spec"].keys() <= spec
        assert ours.keys() <= predictor
        assert ours.get("model", {}).keys() <= model

"""Groovy 2.4, the version that Jenkins embeds, compiles pipeline and steps; skipped where there is no `groovyc`."""

from tests.jenkins.compiler import compile_groovy
from tests.jenkins.files import PIPELINE, VARS


def test_the_compiler_takes_pipeline_and_steps(tmp_path):
    done = compile_groovy({PIPELINE.stem: PIPELINE.read_text()} | {n: p.read_text() for n, p in VARS.items()}, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out" / "gangline.class").is_file()


def test_the_compiler_is_asked_for_real(tmp_path):
    assert compile_groovy({"broken": "def call( {"}, tmp_path).returncode != 0

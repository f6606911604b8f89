"""The smoke test of a model sees the variables of its line, and no secret."""

from gangline.launch.sandbox.module_runner import ModuleResult
from gangline.registry import smoke_test


class Answers:
    def run(self, job):
        self.job = job
        return ModuleResult(exit_code=0, stdout=b'{"parameters": 8}', stderr=b"")


def test_variables_of_the_line_are_there_but_no_secret(tmp_path, monkeypatch):
    def made(*_):
        return smoke_test.ModuleJob(module="gangline.train.roles.smoke_test", seconds=1.0, trust="own")

    monkeypatch.setattr(smoke_test, "_job", made)
    runner = Answers()
    env = {"WIDTH": "3", "TOKEN": "secret:env:TOKEN"}
    said = smoke_test.run_smoke_test(None, None, tmp_path, tmp_path / "work", runner, env=env, python=lambda: None)
    assert said.text == "opens in a fresh process, 8 finite numbers"
    assert runner.job.env == {"WIDTH": "3"}

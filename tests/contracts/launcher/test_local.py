"""What the local launcher promises beyond the contract: crashes of drivers and keepers, files, secrets, environment."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace

import pytest
from tests.contracts.launcher.gangs import HEAD, SLEEPER, STEPPER, layer_of, poll

from gangline import procfs
from gangline.errors import CapacityError, IntegrityError
from gangline.launch.local.folder import GangFolder
from gangline.spec.gang.podset import Resources
from gangline.storage.objects.blobs import blob_key, put_blob


@pytest.fixture
def stand(local):
    return local


def test_gang_outlives_a_driver_that_is_killed_in_follow(stand):
    podset = stand.podset(HEAD + "step(0)\nwhile not os.path.exists('go'): time.sleep(0.02)\nstep(1)")
    (stand.root.parent / "podset.json").write_bytes(podset.to_json())
    driver = textwrap.dedent(f"""
        from pathlib import Path
        from gangline.launch.local import LocalLauncher
        from gangline.spec.gang.podset import PodSet
        from gangline.storage.open import open_store
        store = open_store({stand.store.url!r})
        launcher = LocalLauncher(Path({str(stand.root)!r}), store=store, secrets=lambda _: b"")
        launcher.submit(PodSet.from_json(Path({str(stand.root.parent / "podset.json")!r}).read_bytes()))
        for event in launcher.follow("run-1"):
            print(event.kind, flush=True)
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", driver], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with process, process.stdout as lines:
        while "progress" not in lines.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
    assert stand.launcher.status("run-1").state in ("starting", "running")
    assert stand.launcher.submit(podset).adopted
    (stand.root / "run-1" / "code" / "go").touch()
    events = list(stand.launcher.follow("run-1"))
    assert [event.data["step"] for event in events if event.kind == "progress" and event.data["rank"] == 0] == [0, 1]
    assert events[-1].end.exit_code == 0


def test_killed_keeper_is_noticed_and_leaves_no_rank(stand):
    stand.launcher.submit(stand.podset(SLEEPER))
    poll(lambda: stand.launcher.status("run-1").state == "running")
    os.kill(GangFolder(stand.root / "run-1").keeper(0).pid, signal.SIGKILL)
    poll(lambda: stand.launcher.status("run-1").state == "ended")
    end = stand.launcher.collect("run-1")
    assert (end.exit_code, end.retry) == (137, "same")
    assert "keeper of node 0 died" in end.reason
    poll(lambda: not stand.processes())


def test_program_that_leaves_the_session_is_ended_with_its_rank(stand):
    program = HEAD + "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True); step(1)"
    stand.launcher.submit(stand.podset(program))
    assert [event.end.exit_code for event in stand.launcher.follow("run-1") if event.end] == [0]
    poll(lambda: not stand.processes())


def test_signals_never_reach_a_stranger_with_the_old_pid(stand):
    stand.launcher.submit(stand.podset(STEPPER))
    list(stand.launcher.follow("run-1"))
    poll(lambda: not stand.processes())
    folder = GangFolder(stand.root / "run-1")
    (folder.home / "exit-0.json").unlink()
    stranger = subprocess.Popen(["sleep", "60"])
    launched = folder.launched().keepers[0]
    folder.write("launch.json", {"uid": "u", "keepers": [{"pid": stranger.pid, "start_time": launched.start_time}]})
    stand.launcher.cancel("run-1", reason="clean up")
    assert stranger.poll() is None
    assert stand.launcher.collect("run-1").exit_code == 137, "the keeper is gone, whoever has its pid"
    stranger.kill()
    stranger.wait()


def test_two_submitters_start_one_gang(stand):
    podset, gangs = stand.podset(SLEEPER), []
    threads = [threading.Thread(target=lambda: gangs.append(stand.again().submit(podset))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({gang.uid for gang in gangs}) == 1
    assert sorted(gang.adopted for gang in gangs) == [False] + [True] * 7


def test_submit_completes_what_a_dead_submitter_began(stand):
    podset = stand.podset(STEPPER)
    folder = GangFolder(stand.root / "run-1")
    folder.home.mkdir(parents=True)
    (folder.home / "podset.json").write_bytes(podset.to_json())
    assert stand.launcher.status("run-1").state == "starting"
    assert stand.launcher.submit(podset).adopted
    assert [event.end.exit_code for event in stand.launcher.follow("run-1") if event.end] == [0]


def test_gang_that_never_came_to_life_can_be_cancelled(stand):
    folder = GangFolder(stand.root / "run-1")
    folder.home.mkdir(parents=True)
    (folder.home / "podset.json").write_bytes(stand.podset(STEPPER).to_json())
    stand.launcher.cancel("run-1", reason="no longer wanted")
    assert stand.launcher.collect("run-1").exit_code == 70


def test_flipped_code_layer_is_refused_before_anything_starts(stand):
    podset = stand.podset(STEPPER)
    stand.store.put(podset.code, b"something else")
    with pytest.raises(IntegrityError, match="digest"):
        stand.launcher.submit(podset)
    assert stand.launcher.status("run-1").state == "absent"


def test_gang_sees_its_own_environment_and_secrets_are_gone_after_it(stand, monkeypatch):
    monkeypatch.setenv("GANGLINE_CANARY_TOKEN", "canary-value")
    program = (
        HEAD
        + "print(sorted(os.environ)); print(os.environ['MINE'], oct(os.stat(os.environ['GANGLINE_KEY_FILE']).st_mode))"
    )
    stand.launcher.submit(stand.podset(program, env={"MINE": "yes", "WORLD_SIZE": "99"}))
    assert [event.end.exit_code for event in stand.launcher.follow("run-1") if event.end] == [0]
    text = "".join(line.text for line in stand.launcher.logs("run-1"))
    assert "CANARY" not in text
    assert "yes 0o100600" in text
    assert not (stand.root / "run-1" / "secrets").exists()


def test_modules_in_the_folder_of_the_driver_do_not_reach_the_gang(stand, tmp_path, monkeypatch):
    (tmp_path / "select.py").write_text("raise SystemExit('a stranger')")
    monkeypatch.chdir(tmp_path)
    code = {"program.py": HEAD + "import own; print(own.WORD)", "own.py": "WORD = 'from the code layer'"}
    podset = stand.podset("")
    stand.launcher.submit(replace(podset, code=put_blob(stand.store, layer_of(code))))
    assert [event.end.exit_code for event in stand.launcher.follow("run-1") if event.end] == [0]
    assert "from the code layer" in [line.text for line in stand.launcher.logs("run-1")]


def test_keeper_that_cannot_read_its_plan_says_so(stand):
    podset = stand.podset(STEPPER)
    stand.launcher.submit(stand.podset(STEPPER, plan=put_blob(stand.store, b"{}")))
    end = next(event.end for event in stand.launcher.follow("run-1") if event.end)
    assert "Plan" in end.reason
    assert blob_key(b"{}") != podset.plan


def test_zombies_count_as_dead(stand):
    child = subprocess.Popen(["true"])
    started = procfs.start_time(child.pid)
    poll(lambda: procfs.state(child.pid) == "Z")
    assert not procfs.is_alive(child.pid, started)
    child.wait()


def test_secrets_are_given_again_to_a_gang_that_runs_and_to_no_other(stand):
    name = stand.launcher.submit(stand.podset(SLEEPER)).name
    secrets = stand.root / name / "secrets"
    key = next(secrets.iterdir())
    first = key.stat().st_ino
    stand.launcher.renew(name)
    assert key.stat().st_ino != first
    assert key.stat().st_mode & 0o777 == 0o600
    stand.launcher.cancel(name, reason="enough", save=False)
    stand.launcher.collect(name)
    stand.launcher.renew(name)
    assert not secrets.exists()


def test_more_gpus_than_there_are_is_not_a_place(stand):
    with pytest.raises(CapacityError, match="wants 64 GPUs"):
        stand.launcher.submit(stand.podset(SLEEPER, resources=Resources(gpus=64)))
    assert stand.launcher.status("run-1").state == "absent"


def test_a_log_is_shown_without_secrets_while_its_rank_writes(stand):
    """What stands in the file goes once the gang has ended."""
    script = (
        HEAD + "print('got', os.environ['HUB_TOKEN'], flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)"
    )
    value = "value of env.HUB_TOKEN"
    stand.launcher.submit(replace(stand.podset(script), secrets=("env.HUB_TOKEN",)))
    poll(lambda: any("got" in line.text for line in stand.launcher.logs("run-1")))
    shown = [line.text for line in stand.launcher.logs("run-1")]
    assert "got ***" in shown
    assert not any(value in line for line in shown)
    (stand.root / "run-1" / "code" / "go").touch()
    *_, end = stand.launcher.follow("run-1")
    assert end.end.exit_code == 0
    assert value not in (stand.root / "run-1" / "logs" / "0.log").read_text()
    assert any(line.text.startswith("got ***") for line in stand.launcher.logs("run-1"))

"""Commands of Slurm by their words: sbatch, squeue, scancel, scontrol, sacct, sinfo. Nothing here goes through a shell.

Each call has ten seconds. What Slurm refuses becomes an error of ours with Slurm's own sentence; a controller that does
not answer is `SlurmAway`, which callers may wait for.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from gangline.errors import CapacityError, ConfigError, GanglineError, StorageError

CALL_SECONDS = 10.0
_AGAIN_SECONDS = 2
"""Pause between the end of a job and its next start; slurmd compares whole seconds."""
_FIELDS = "%A|%T|%r|%P|%q|%S|%N|%k"
"""Number, state, reason, partition, QOS, start, servers, comment; the comment is last, as it may hold anything."""
_AWAY = re.compile(
    r"Unable to contact|Socket timed out|Connection refused|Zero Bytes|slurm_receive_msg|Transport endpoint|"
    r"Communication connection|Connection timed out|Could not resolve hostname|Connection closed",
    re.IGNORECASE,
)
_FULL = re.compile(
    r"accounting/QOS policy|SubmitJob|submit limit|job limit|GrpTRESMins|GrpCPUMins|Slurm temporarily unable|"
    r"maximum number of jobs|MaxJobCount",
    re.IGNORECASE,
)
_UNKNOWN_JOB, _SILENCE = "Invalid job id", "it said nothing"
_OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE",
         "BOOT_FAIL", "REVOKED", "SPECIAL_EXIT")  # fmt: skip


class SlurmAway(StorageError):
    """Slurm does not answer now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmJob:
    """One job, as squeue or sacct tells it."""

    number: str
    state: str
    """Slurm's word: PENDING, RUNNING, ..."""
    reason: str = ""
    """Slurm's word for why it waits."""
    partition: str = ""
    qos: str = ""
    starts: str = ""
    """Start time, or the one that Slurm expects; empty: not known."""
    servers: str = ""
    comment: str = ""

    @property
    def is_over(self) -> bool:
        """Nothing of it runs, and it does not start again by itself."""
        return self.state in _OVER

    @property
    def is_held(self) -> bool:
        """It waits until its user releases it."""
        return self.state == "PENDING" and self.reason == "JobHeldUser"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServersOfAKind:
    """Equal servers of a partition, as sinfo tells them."""

    count: int
    cores: int
    memory_bytes: int
    gpus: int = 0
    gpu_name: str = ""


@dataclass(frozen=True, slots=True)
class SlurmCommands:
    """Slurm as this user reaches it."""

    via: tuple[str, ...] = ()
    """Words before each command, as `("ssh", "login1")`."""

    def submit(self, words: Sequence[str], script: PurePath) -> str:
        """Submit a script with these options; returns the number of the job.

        Raises:
            ConfigError: Slurm refuses the job; its sentence is in the message.
            CapacityError: There is no room for another job of this user, account or QOS.
            SlurmAway: Slurm does not answer; the job may exist.
        """
        said = self._call("sbatch", "--parsable", *words, str(script))
        return said.strip().splitlines()[-1].partition(";")[0]

    def test(self, words: Sequence[str]) -> None:
        """Have Slurm check options without a submission; raises as `submit` does."""
        self._call("sbatch", "--test-only", *words, "--wrap=true")

    def named(self, name: str) -> list[SlurmJob]:
        """Jobs of this user with this name that are not over, in the order of their numbers."""
        said = self._call("squeue", "--noheader", "--me", f"--name={name}", f"--format={_FIELDS}")
        return sorted(_jobs(said), key=lambda job: int(job.number))

    def job(self, number: str) -> SlurmJob | None:
        """The job; None: Slurm has forgotten it."""
        try:
            said = self._call("squeue", "--noheader", f"--jobs={number}", "--states=all", f"--format={_FIELDS}")
        except ConfigError as error:
            if _UNKNOWN_JOB not in str(error):
                raise
            said = ""
        return next(_jobs(said), None) or self._accounted(number)

    def _accounted(self, number: str) -> SlurmJob | None:
        """The job by sacct, where accounting is on."""
        try:
            said = self._call("sacct", "--noheader", "--parsable2", "-X", f"--jobs={number}", "--format=JobID,State")
        except GanglineError:
            return None
        for line in said.splitlines():
            found, _, state = line.partition("|")
            if found == number and state:
                return SlurmJob(number=number, state=state.split()[0])
        return None

    def count_before(self, job: SlurmJob) -> int:
        """Jobs of its partition that wait with a higher priority."""
        words = ("--states=PENDING", f"--partition={job.partition}", "--sort=-p,i", "--format=%A")
        numbers = self._call("squeue", "--noheader", *words).split()
        return numbers.index(job.number) if job.number in numbers else 0

    def release(self, number: str) -> None:
        """Let a held job start; no effect on any other."""
        self._call("scontrol", "release", number)

    def requeue(self, number: str) -> None:
        """Put a running job back into the queue; Slurm ends its processes, that of the caller in it, too."""
        self._call("scontrol", "requeue", number)

    def start_now(self, number: str) -> None:
        """Let a job that was put back into the queue start without its two minutes of waiting.

        Not within the second in which its processes were ended: slurmd takes the credential of such a start for one
        that was revoked, and the job fails ("Killing non-startable batch job").
        """
        self._call("scontrol", "update", f"JobId={number}", f"StartTime=now+{_AGAIN_SECONDS}")

    def ask_to_stop(self, number: str) -> None:
        """SIGTERM to the processes of a running job, not to its script; no effect on a job that is over."""
        self._stop("--signal=TERM", number)

    def cancel(self, number: str) -> None:
        """End a job; no effect on one that is over."""
        self._stop(number)

    def _stop(self, *words: str) -> None:
        """Call scancel, which for a job that is over ends with 1 and says nothing, or that the number is unknown."""
        try:
            self._call("scancel", "--quiet", *words)
        except ConfigError as error:
            if _SILENCE not in str(error) and _UNKNOWN_JOB not in str(error):
                raise

    def servers(self, partition: str | None) -> list[ServersOfAKind]:
        """Servers of a partition, of the default one for None, that are not down, by kind."""
        words = ("--noheader", "--exact", "--format=%P|%D|%c|%m|%G|%t")
        said = self._call("sinfo", *words, *([f"--partition={partition}"] if partition else []))
        return [kind for line in said.splitlines() if (kind := _kind(line, any_partition=partition is not None))]

    def _call(self, *words: str) -> str:
        command = self._command(words)
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CALL_SECONDS, check=False
            )
        except FileNotFoundError as error:
            raise ConfigError(
                f'launch.target slurm: wanted the command {command[0]}, found none; slurm.via = ["ssh", "LOGIN"] works'
                " from a machine without it"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise SlurmAway(f"{words[0]} did not answer within {CALL_SECONDS:g} s; it is safe to try again") from error
        if done.returncode:
            raise _error(words[0], done.stderr or done.stdout)
        return done.stdout

    def _command(self, words: Sequence[str]) -> list[str]:
        """ssh hands one text to a shell there, so that it is quoted; other words before a command get it as it is."""
        if self.via and PurePath(self.via[0]).name == "ssh":
            return [*self.via, shlex.join(words)]
        return [*self.via, *words]


def _error(command: str, said: str) -> GanglineError:
    sentence = " ".join(line.strip() for line in said.splitlines() if line.strip()) or _SILENCE
    sentence = re.sub(r"\b(sbatch|squeue|scancel|scontrol|sacct|sinfo|slurm_load_jobs)( error)?: ", "", sentence)
    if _AWAY.search(said):
        return SlurmAway(f"Slurm does not answer {command}: {sentence}; it is safe to try again")
    if command == "sbatch" and _FULL.search(said):
        return CapacityError(f"Slurm takes no further job now: {sentence}; run again later")
    return ConfigError(f"Slurm refuses {command}: {sentence}; [slurm] of site.toml has its options")


def _jobs(said: str) -> Iterator[SlurmJob]:
    for line in said.splitlines():
        fields = line.strip().split("|", 7)
        if len(fields) == 8 and fields[0].isdecimal():
            number, state, reason, partition, qos, starts, servers, comment = fields
            yield SlurmJob(
                number=number, state=state, reason=reason.strip("()"), partition=partition, qos=qos,
                starts="" if starts == "N/A" else starts, servers=servers, comment=comment,
            )  # fmt: skip


_GRES = re.compile(r"gpu:(?:([A-Za-z][\w.-]*):)?(\d+)")
_DOWN = ("down", "drain", "drng", "drained", "fail", "unk", "boot", "maint", "inval")


def _kind(line: str, *, any_partition: bool) -> ServersOfAKind | None:
    """None: the servers are away, or of another partition than the default one."""
    partition, count, cores, mebibytes, gres, state = line.strip().split("|")
    if (not any_partition and not partition.endswith("*")) or state.rstrip("*~#!%$@^-+").startswith(_DOWN):
        return None
    match = _GRES.search(gres)
    return ServersOfAKind(
        count=int(count), cores=int(cores.rstrip("+")), memory_bytes=int(mebibytes.rstrip("+")) * 2**20,
        gpus=int(match[2]) if match else 0, gpu_name=(match[1] or "") if match else "",
    )  # fmt: skip

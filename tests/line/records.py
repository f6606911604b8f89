"""Records as short as they may be."""

from gangline.spec.record import CommitInfo, Inputs, Record, RunInfo

SHA = "9f31c2a0" * 5


def record(run: str = "cheap-9f31c2a0-k7q2mx", *, branch: str | None = "main", created: str = "2026-01-01") -> Record:
    return Record(
        run=RunInfo(id=run, project="cheap", created=created),
        commit=CommitInfo(sha=SHA, tree="a" * 40, branch=branch),
        inputs=Inputs(line="b" * 64),
    )

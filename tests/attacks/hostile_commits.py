"""Commits that cost whoever looks at them, made of git's own objects, since no work tree would hold them."""

import subprocess
import zlib
from hashlib import sha1

from tests.line.repositories import LINE, git

TASK_LINE = LINE.replace('command = ["python", "answer.py"]', 'task = "model:Task"')


def put(repo, kind, content):
    """Name of an object, written as fast as it can be."""
    data = f"{kind} {len(content)}\0".encode() + content
    name = sha1(data).hexdigest()
    path = repo / ".git" / "objects" / name[:2] / name[2:]
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(data, 1))
    return name


def tree(repo, entries):
    """Of (mode, name, object)."""
    rows = sorted(entries, key=lambda each: each[1] + ("/" if each[0] == "40000" else ""))
    return put(repo, "tree", b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(o) for mode, name, o in rows))


def commit(repo, files, *, branch, message="a commit", more=()):
    """On a branch of its own: `files` by path at the top, and `more` entries."""
    entries = [("100644", name, put(repo, "blob", content)) for name, content in files.items()]
    whole = tree(repo, [*entries, *more])
    done = subprocess.run(
        ["git", "-C", str(repo), "-c", "user.name=t", "-c", "user.email=t@example.org", "commit-tree", whole],
        input=message.encode(), capture_output=True, check=True,
    )  # fmt: skip
    git(repo, "update-ref", f"refs/heads/{branch}", done.stdout.decode().strip())
    return done.stdout.decode().strip()


def large_task(size):
    """A module of so many bytes, each of which is a name for the parser."""
    return {"line.toml": TASK_LINE.encode(), "model.py": b"class Task: pass\n" + b"a=b;" * (size // 4)}


def deep_task(depth):
    return {"line.toml": TASK_LINE.encode(), "model.py": b"class Task: pass\nx = " + b"(" * depth + b")" * depth}


def large_line(size):
    return {"line.toml": LINE.encode() + b"#" * size}


def wide(repo, count):
    """One folder of so many files, all of them the same."""
    blob = put(repo, "blob", b"")
    names = tree(repo, [("100644", f"{n:09}", blob) for n in range(count)])
    return [("40000", "files", names)]


def bomb(repo, levels, width=10):
    """A folder of folders of folders: each level is one object, all of them together are width ** levels paths."""
    name, mode = put(repo, "blob", b""), "100644"
    for _ in range(levels):
        name, mode = tree(repo, [(mode, f"f{n}", name) for n in range(width)]), "40000"
    return [("40000", "folders", name)]

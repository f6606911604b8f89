"""`gangline down`: stop what `gangline up` started, and nothing else."""

from typing import Annotated

import typer

from gangline.cli.options import HERE, JsonOption, RepoOption
from gangline.cli.output import answer, columns


def command(
    *,
    repo: RepoOption = HERE,
    forget: Annotated[bool, typer.Option("--forget", help="Remove their data, keys and logs, too.")] = False,
    json: JsonOption = False,
) -> None:
    """Stop the servers of the local stack; a process that took over one of their ids is left alone."""
    from gangline.cli.workspace import find_repo
    from gangline.stack.home import StackHome
    from gangline.stack.lifecycle import take_down

    home = StackHome.of(find_repo(repo.resolve()) or repo.resolve())
    rows = take_down(home, forget=forget)
    absent = "nothing of the local stack runs here" + ("; its folder is gone" if forget else "")
    text = columns([(row.name, row.state) for row in rows]) if rows else absent
    answer({"forgotten": forget, "servers": rows}, text, json=json)

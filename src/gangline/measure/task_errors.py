"""An exception of a task's code as one line."""

import traceback
from pathlib import Path


def raised(error: BaseException) -> str:
    """`forward (model.py:53) raised ValueError: ...`: the innermost call of the code layer, this folder."""
    here = Path.cwd()
    calls = traceback.extract_tb(error.__traceback__)
    own = [call for call in calls if Path(call.filename).is_relative_to(here)]
    who = f"{own[-1].name} ({Path(own[-1].filename).relative_to(here)}:{own[-1].lineno})" if own else "the task"
    return f"{who} raised {type(error).__name__}: {' '.join(str(error).split())}"

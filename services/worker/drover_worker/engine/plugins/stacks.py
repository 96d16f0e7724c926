"""Where the code of a thread is at present."""

import gc
import sys
import traceback
from types import FrameType

_FRAMES_MAX = 10
_STACK_MAX_CHARS = 2_000
_WALKED_MAX = 500
#: Calls in files with this part run the plugin's code, and are left out.
_ENGINE_PART = "/drover_worker/"


def stack_of(thread_id: int) -> str:
    """The calls of a thread from the plugin's first one on, innermost last; empty if it has ended.

    At most 10 calls and 2,000 characters: of more calls the first and the last ones.
    """
    frame = _frame_of(thread_id)
    if frame is None:
        return ""
    calls = traceback.StackSummary.extract(
        traceback.walk_stack(frame), limit=200, lookup_lines=False
    )
    calls.reverse()
    engine = [index for index, call in enumerate(calls) if _ENGINE_PART in call.filename]
    first = engine[-1] + 1 if engine else 0
    lines = [_line(call) for call in calls[first:] or calls[-1:]]
    if len(lines) > _FRAMES_MAX:
        half = _FRAMES_MAX // 2
        left_out = len(lines) - 2 * half
        lines = [*lines[:half], f"… {left_out} calls …", *lines[-half:]]
    text = "\n".join(lines)
    return text if len(text) <= _STACK_MAX_CHARS else f"…{text[1 - _STACK_MAX_CHARS :]}"


def _frame_of(thread_id: int) -> FrameType | None:
    """The present frame of a thread; None if it has ended."""
    # a garbage collection in this call deadlocks the process (CPython 3.11, gh-106883)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread_id)
    finally:
        if was_enabled:
            gc.enable()


def _line(call: traceback.FrameSummary) -> str:
    code = f": {call.line}" if call.line else ""
    return f"{call.filename}:{call.lineno} in {call.name}{code}"

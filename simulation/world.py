"""Simulated time and chance: every event is an action at a time, and the seed determines all."""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.loop import ProcessLoop

START_MS = 1_000_000
STORY_LENGTH = 50_000
SHOWN_LENGTH = 60
Action = Callable[[], object]


class BrokenRuleError(AssertionError):
    """A safety or liveness rule was broken; ``items`` names the items concerned."""

    def __init__(self, rule: str, what: str, *items: object) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        self.items = tuple(map(str, items))
        _raised.append(self)


#: Broken rules: production code that runs in the simulation may catch the exception.
_raised: list[BrokenRuleError] = []


class World:
    """The clock, the random generator, the queue of actions, and the story of past events.

    Args:
        seed: The same seed gives the same run.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = START_MS
        self.step_count = 0
        #: The event loops of all incarnations of all processes.
        self.loops: list[ProcessLoop] = []
        _raised.clear()
        self._actions: list[tuple[int, int, Action]] = []
        self._action_count = 0
        self._ids = itertools.count(1)
        self._story: deque[tuple[int, tuple[object, ...], str, tuple[object, ...]]] = deque(
            maxlen=STORY_LENGTH
        )

    def next_id(self) -> int:
        """A new unique number."""
        return next(self._ids)

    def chance(self, probability: float) -> bool:
        """True with ``probability``."""
        return probability > 0 and self.random.random() < probability

    def between(self, low: int, high: int) -> int:
        """A random integer from ``low`` to ``high``, inclusive."""
        return low + int(self.random.random() * (high - low + 1))

    def after(self, delay_ms: int, action: Action) -> None:
        """Schedule an action."""
        self._action_count += 1
        heapq.heappush(self._actions, (self.now_ms + delay_ms, self._action_count, action))

    def run(self, until_ms: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Run actions until a time; returns True as soon as ``is_done`` does."""
        actions = self._actions
        while actions and actions[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(actions)
            self.step_count += 1
            action()
            if _raised:
                raise _raised[0]
            if is_done is not None and is_done():
                return True
        self.now_ms = max(self.now_ms, until_ms)
        return is_done is not None and is_done()

    def close(self) -> None:
        """End everything that still runs."""
        for loop in self.loops:
            loop.dispose()
        self.loops.clear()
        _raised.clear()

    def tell(self, items: tuple[object, ...], text: str, *arguments: object) -> None:
        """Add to the story of ``items``; ``text`` is formatted only if it is ever shown."""
        self._story.append((self.now_ms - START_MS, items, text, arguments))

    def story(self, items: Collection[str] = (), limit: int = SHOWN_LENGTH) -> str:
        """The last events of any of ``items``; of everything when there are none."""
        lines = []
        for now_ms, about, text, arguments in reversed(self._story):
            if items and not any(str(item) in items for item in about):
                continue
            lines.append(f"{now_ms:>8} ms  {text.format(*arguments)}")
            if len(lines) == limit:
                break
        return "\n".join(reversed(lines))

"""Simulated time and chance: everything that happens is an action at a time, and a seed decides."""

import heapq
import random
from collections import deque
from collections.abc import Callable

STORY_LENGTH = 60
Action = Callable[[], None]


class World:
    """The clock, the dice, the network's faults, and the story of what happened.

    Args:
        seed: The same seed gives the same run.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.faulty = True
        self.loss_probability = self.random.choice((0.0, 0.02, 0.1))
        self.delay_max_ms = self.random.choice((5, 50, 500))
        self._actions: list[tuple[int, int, Action]] = []
        self._action_count = 0
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)

    def after(self, delay_ms: int, action: Action) -> None:
        """Do something later."""
        self._action_count += 1
        heapq.heappush(self._actions, (self.now_ms + delay_ms, self._action_count, action))

    def send(self, action: Action) -> None:
        """Carry a message: late, out of order, or not at all while there are faults."""
        if self.faulty and self.random.random() < self.loss_probability:
            self.tell("a message is lost")
            return
        delay_max_ms = self.delay_max_ms if self.faulty else 5
        self.after(self.random.randint(1, delay_max_ms), action)

    def run(self, until_ms: int, check: Action, done: Callable[[], bool] | None = None) -> bool:
        """Let things happen until a time, checking after each; True once ``done`` holds."""
        while self._actions and self._actions[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(self._actions)
            action()
            check()
            if done is not None and done():
                return True
        self.now_ms = max(self.now_ms, until_ms)
        return done is not None and done()

    def tell(self, event: str) -> None:
        """Add to the story."""
        self._story.append(f"{self.now_ms - 1_000_000:>9} ms  {event}")

    def story(self) -> str:
        """The last events, for a failure's report."""
        return "\n".join(self._story)

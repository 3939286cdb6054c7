"""What a person sees of a training while it runs. Changes no measured value."""

import time
from collections.abc import Callable
from typing import Any

from workflow_scripts.lib.history import StepRow


class Listener:
    """Keeps the rows that a training sends, and tells a person from time to time how far it is.

    Args:
        title: what is being trained, where; stands before every line.
        announce: writes a line to the terminal.
        every_s: seconds between two lines of progress.
    """

    def __init__(self, title: str, announce: Callable[[str], None], every_s: float = 10.0):
        self.title, self.announce, self.every_s = title, announce, every_s
        self.rows: list[StepRow] = []
        self.next_at = 0.0

    def hear(self, message: dict[str, Any]) -> None:
        """Takes a message of `training.train`."""
        self.rows += [StepRow(*row) for row in message.get("rows", ())]
        if "notice" in message:
            self.tell(message["notice"])
        if "progress" in message and time.monotonic() >= self.next_at:
            self.next_at = time.monotonic() + self.every_s
            self.tell(progress_line(**message["progress"]))

    def tell(self, sentence: str) -> None:
        self.announce(f"{self.title}: {sentence}")


def progress_line(*, step: int, n_steps: int, loss: float, tokens_per_s: float, eta_s: float) -> str:
    """How far a training is: `step 420/2000, loss 2.31, 12,300 tokens/s, 1:40 left`."""
    minutes, seconds = divmod(round(eta_s), 60)
    left = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}" if minutes >= 60 else f"{minutes}:{seconds:02}"
    return f"step {step}/{n_steps}, loss {loss:#.3g}, {float(f'{tokens_per_s:.3g}'):,.0f} tokens/s, {left} left"

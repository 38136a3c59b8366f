"""How long tests wait: until what they wait for is there, or so long that it never will be.

No test is as long as this where all is well; a machine may be busy, and a hang is to fail in
minutes and in a sentence. `pytest-timeout` ends whatever waits without a limit of its own.
"""

import subprocess
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

PATIENCE = 120.0
"""seconds"""


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)


class Process(subprocess.Popen[Any]):
    """One that is waited for with patience, and that does not outlive a test that failed."""

    def communicate(self, input: Any = None, timeout: float | None = PATIENCE) -> Any:
        return super().communicate(input, timeout)

    def wait(self, timeout: float | None = PATIENCE) -> int:
        return super().wait(timeout)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)

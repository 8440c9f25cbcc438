"""A measurement that the user stopped, with what it had found."""

from __future__ import annotations

from gradscope.record import Recording


class MeasurementInterrupted(KeyboardInterrupt):
    """Ctrl-C while measuring.

    Attributes:
        recording: What had been measured, marked partial.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__("interrupted")
        self.recording = recording

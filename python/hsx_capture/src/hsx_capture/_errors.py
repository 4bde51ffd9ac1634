"""What goes wrong, for callers that branch on it."""

from __future__ import annotations

from collections.abc import Sequence


class CaptureError(Exception):
    """Something that cannot be captured or kept: the message says what was seen and what was wanted."""


class RefusedError(CaptureError):
    """Samples that the spool or the receiver refuses; the capture of others goes on.

    ids are those of the refused samples.
    """

    def __init__(self, message: str, ids: Sequence[str]) -> None:
        super().__init__(message)
        self.ids = list(ids)

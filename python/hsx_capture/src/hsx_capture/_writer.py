"""Threads that bring samples out of the process, and the bounded queue before them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from hsx_capture._errors import CaptureError, RefusedError
from hsx_capture._file import Sample, encode

_TOLD = 5  # refusals in one message


class Sink(Protocol):
    """Where samples go. One thread writes."""

    def write(self, id: str, parts: Sequence[memoryview]) -> None:
        """Keep one sample, or raise: a RefusedError concerns it alone."""

    def sync(self) -> None:
        """Make sure that what was written outlives the machine."""

    def close(self) -> None:
        """Let go of what is open."""


class Writer:
    """Writes in the background, a thread for each sink. At most limit bytes wait, or one sample that is larger."""

    def __init__(self, sinks: Sequence[Sink], limit: int) -> None:
        self._sinks, self._limit = sinks, limit
        self._changed = threading.Condition()
        self._queue: deque[Sample] = deque()
        self._held = self._pending = 0  # bytes and samples, queued and being written
        self._refused: list[RefusedError] = []
        self._failure: tuple[str, BaseException] | None = None
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, args=[sink], name="hsx-capture", daemon=True) for sink in sinks
        ]
        for thread in self._threads:
            thread.start()

    def put(self, sample: Sample) -> None:
        """Queue a sample; wait while the queue is full."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or not self._pending or self._held + sample.cost <= self._limit
            )
            self._raise_failure()
            self._queue.append(sample)
            self._held += sample.cost
            self._pending += 1
            self._changed.notify_all()

    def check(self) -> None:
        """Raise what went wrong since the last call. A failure that stopped the writing is raised each time."""
        with self._changed:
            self._raise_failure()
            refused, self._refused = self._refused, []
        if refused:
            more = f" and {len(refused) - _TOLD} more" if len(refused) > _TOLD else ""
            message = "; ".join(str(e) for e in refused[:_TOLD]) + more
            raise RefusedError(message, [id for e in refused for id in e.ids]) from refused[0]

    def flush(self) -> None:
        """Wait until all is written and durable, and raise what went wrong."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or not self._pending)
            self._raise_failure()
        for sink in self._sinks:
            sink.sync()
        self.check()

    def close(self) -> None:
        """Write what is queued and end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        for sink in self._sinks:
            sink.close()

    def _raise_failure(self) -> None:
        if self._failure:
            id, cause = self._failure
            raise CaptureError(f"write sample {id!r}: {cause}; {self._pending} samples are not written") from cause

    def _run(self, sink: Sink) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed or self._failure)
                if self._failure or not self._queue:
                    return
                sample = self._queue.popleft()
            failure = self._write(sink, sample)
            with self._changed:
                if failure is None:
                    self._held -= sample.cost
                    self._pending -= 1
                elif self._failure is None:
                    self._failure = sample.id, failure
                self._changed.notify_all()
            del sample, failure  # its memory must not wait for the next one

    def _write(self, sink: Sink, sample: Sample) -> BaseException | None:
        try:
            sink.write(sample.id, encode(sample))
        except RefusedError as e:
            with self._changed:
                self._refused.append(e.with_traceback(None))  # which would hold the sample's memory
        except BaseException as e:  # nothing may end this thread unseen
            return e
        return None

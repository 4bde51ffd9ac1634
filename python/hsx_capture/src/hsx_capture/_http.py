"""The client of `hsx serve`."""

from __future__ import annotations

import http.client
import random
import ssl
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit

from hsx_capture._errors import CaptureError, RefusedError

_TIMEOUT = 120.0  # seconds, of one step of a connection
_FIRST, _LONGEST = 0.5, 30.0  # seconds between tries
_REASON = 2000  # bytes read of an answer
_PIECE = 1 << 20  # bytes of one send: the timeout is for the whole of it


class Http:
    """One connection. Posts each sample until the receiver says that it is kept, for patience seconds at most."""

    def __init__(self, url: str, token: str | None, patience: float) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as e:
            raise CaptureError(f"to is {url!r}: {e}") from e
        if not parts.hostname or parts.query or parts.fragment or parts.username:
            raise CaptureError(f"to is {url!r}, want http://host:port or https://host:port")
        self._host = parts.hostname
        self._base, self._patience = parts.path.rstrip("/"), patience
        self._headers = {"Content-Type": "application/octet-stream"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._conn = connection(self._host, port, timeout=_TIMEOUT)

    def write(self, id: str, parts: Sequence[memoryview]) -> None:
        """Post one sample. What the receiver refuses is raised with its reason, what may pass is tried again."""
        path = f"{self._base}/v1/samples/{quote(id, safe='')}"
        headers = {**self._headers, "Content-Length": str(sum(len(part) for part in parts))}
        pieces = [part[at : at + _PIECE] for part in parts for at in range(0, len(part), _PIECE)]
        end, pause = time.monotonic() + self._patience, _FIRST
        while True:
            wait = pause * random.uniform(0.5, 1)
            try:
                status, reason, after = self._post(path, pieces, headers)
            except ssl.SSLCertVerificationError:
                raise
            except (OSError, http.client.HTTPException) as e:
                reason = f"{type(e).__name__}: {e}"
            else:
                if status in (200, 201):
                    return
                reason = f"status {status}: {reason}"
                if status in (409, 413, 422):
                    raise RefusedError(f"sample {id!r} is refused with {reason}", [id])
                if status != 429 and status < 500:
                    raise CaptureError(f"{self._host} answers with {reason}")
                wait = max(wait, after)
            if time.monotonic() + wait > end:
                raise CaptureError(f"{self._host} does not take it within {self._patience:g} s, last with {reason}")
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST)

    def sync(self) -> None:
        """Do nothing: what the receiver acknowledged is durable."""

    def close(self) -> None:
        """Close the connection."""
        self._conn.close()

    def _post(self, path: str, pieces: Sequence[memoryview], headers: dict[str, str]) -> tuple[int, str, float]:
        conn = self._conn
        try:
            try:
                conn.request("POST", path, body=pieces, headers=headers)
            except (BrokenPipeError, ConnectionResetError):
                if conn.sock is None:
                    raise
                # A receiver that refuses answers before it has read everything; else the next line raises.
            response = conn.getresponse()
            reason = response.read(_REASON).decode(errors="replace").strip() or response.reason
            if not response.isclosed():
                conn.close()
            return response.status, reason, _after(response.headers.get("Retry-After", ""))
        except BaseException:
            conn.close()
            raise


def _after(value: str) -> float:
    """Read Retry-After: seconds, or a date."""
    if value.isdecimal():
        return float(value)
    try:
        return parsedate_to_datetime(value).timestamp() - time.time()
    except ValueError:
        return 0.0

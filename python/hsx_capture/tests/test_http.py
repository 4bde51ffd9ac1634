"""The client, against a fake of the receiver: what the real one does with a sample is tested with it."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import safetensors.torch
import torch
from conftest import Toy

import hsx_capture
from hsx_capture import _http


class Fake(ThreadingHTTPServer):
    """Answers each request with the next of its answers, (status, text, headers), then with 201."""

    def __init__(self, *answers):
        self.answers, self.requests, self.lock = list(answers), [], threading.Lock()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        with self.server.lock:
            status, text, headers = self.server.answers.pop(0) if self.server.answers else (201, "", {})
        if status == "early":  # an answer before the body is read
            status = 413
            self.close_connection = True
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with self.server.lock:
                self.server.requests.append((self.path, dict(self.headers), body, status))
        if status == "cut":
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def serve(monkeypatch):
    """Start a fake, capture samples of the given ids into it, and return what it was asked."""
    monkeypatch.setattr(_http, "_FIRST", 0.01)

    def start(*answers, ids=("a",), rows=4, path="", **options):
        model, fake = Toy(), Fake(*answers)
        thread = threading.Thread(target=fake.serve_forever)
        thread.start()
        try:
            to = f"http://127.0.0.1:{fake.server_port}{path}"
            with hsx_capture.Capture(model, [1], to=to, **options) as cap:
                for i, id in enumerate(ids):
                    model(torch.full((rows, 8), float(i)))
                    cap.sample(id, [i] * rows)
        finally:
            fake.shutdown()
            thread.join()
            fake.server_close()
        return fake.requests

    return start


def test_samples_arrive(serve):
    ids = ["plain", "a/b c", "..", "é", *map(str, range(50))]
    requests = serve(ids=ids, token="secret", path="/base/")
    assert len(requests) == len(ids)
    got = {}
    for path, headers, body, _ in requests:
        assert headers["Authorization"] == "Bearer secret"
        tensors = safetensors.torch.load(body)
        i = int(tensors["input_ids"][0])
        assert torch.equal(tensors["layer_1"], torch.full((4, 8), i + 3.0))
        got[ids[i]] = path
    assert len(got) == len(ids)
    assert got["plain"] == "/base/v1/samples/plain"
    assert got["a/b c"] == "/base/v1/samples/a%2Fb%20c"
    assert got["é"] == "/base/v1/samples/%C3%A9"


def test_large_bodies_and_no_token(serve):
    ((_, headers, body, _),) = serve(rows=200_000)
    assert "Authorization" not in headers
    assert safetensors.torch.load(body)["layer_1"].shape == (200_000, 8)


PASSING = {
    "overload": (429, "", {}),
    "overload with a time": (429, "", {"Retry-After": "1"}),
    "overload with a date": (429, "", {"Retry-After": "Fri, 01 Jan 2021 00:00:00 GMT"}),
    "overload with words": (429, "", {"Retry-After": "later"}),
    "unavailable": (503, "starting", {}),
    "broken": (500, "x" * 5000, {}),
    "no answer": ("cut", "", {}),
}


@pytest.mark.parametrize("what", PASSING)
def test_what_passes_is_tried_again(serve, what):
    begin = time.monotonic()
    requests = serve(PASSING[what], PASSING[what])
    assert [status for *_, status in requests] == [PASSING[what][0]] * 2 + [201]
    assert len({body for _, _, body, _ in requests}) == 1
    if what == "overload with a time":
        assert time.monotonic() - begin >= 2


def test_known_already(serve):
    assert [status for *_, status in serve((200, "", {}))] == [200]


@pytest.mark.parametrize("status", [409, 413, 422])
def test_refusals(serve, status):
    with pytest.raises(hsx_capture.RefusedError, match=f"'a' is refused with status {status}: other content") as e:
        serve((status, "other content", {}))
    assert e.value.ids == ["a"]


@pytest.mark.parametrize("rows", [10, 1_000_000])
def test_an_early_refusal(serve, rows):
    with pytest.raises(hsx_capture.RefusedError, match="413: too big"):
        serve(("early", "too big", {}), rows=rows)


@pytest.mark.parametrize(("status", "text"), [(401, "wrong token"), (404, ""), (301, "elsewhere")])
def test_what_no_retry_mends(serve, status, text):
    with pytest.raises(
        hsx_capture.CaptureError, match=f"answers with status {status}: {text or 'Not Found'}; 1 samples"
    ):
        serve((status, text, {}))


def test_patience_ends(serve):
    begin = time.monotonic()
    with pytest.raises(hsx_capture.CaptureError, match=r"does not take it within 0.5 s, last with status 503: busy"):
        serve(*[(503, "busy", {})] * 1000, patience=0.5)
    with pytest.raises(hsx_capture.CaptureError, match=r"does not take it within 0.5 s, last with status 429"):
        serve((429, "", {"Retry-After": "3600"}), patience=0.5)
    assert time.monotonic() - begin < 20


def test_nobody_there():
    model, fake = Toy(), Fake()
    fake.server_close()

    def take():
        with hsx_capture.Capture(model, [1], to=f"http://127.0.0.1:{fake.server_port}", patience=0.5) as cap:
            model(torch.zeros(1, 8))
            cap.sample("a", [1])

    with pytest.raises(hsx_capture.CaptureError, match=r"within 0.5 s, last with ConnectionRefusedError"):
        take()

"""The queue and the threads behind it."""

import threading

import pytest
import safetensors.torch
import torch
from conftest import Toy

import hsx_capture
from hsx_capture import RefusedError, _capture
from hsx_capture._file import Sample, encode
from hsx_capture._taps import Rows


class Sink:
    """Keeps ids; waits for go, then does what it was told to do for an id."""

    def __init__(self, **does):
        self.does, self.ids, self.synced = does, [], 0
        self.go, self.began = threading.Event(), threading.Event()

    def write(self, id, parts):
        self.began.set()
        assert self.go.wait(30)
        if id in self.does:
            raise self.does[id]
        assert sum(len(part) for part in parts) > 0
        self.ids.append(id)

    def sync(self):
        self.synced += 1

    def close(self):
        self.closed = True


@pytest.fixture
def sample(monkeypatch):
    """Make a capture into a sink, and a function that captures one sample of 4 rows of 8 float32."""

    def make(sink, **options):
        monkeypatch.setattr(_capture, "_sinks", lambda *_: [sink])
        model = Toy()
        cap = hsx_capture.Capture(model, [1], to="spool:none", **options)

        def take(id):
            model(torch.zeros(4, 8))
            cap.sample(id, range(4))

        return cap, take

    return make


def test_a_full_queue_blocks_and_drops_nothing(sample):
    sink, done = Sink(), threading.Event()
    cap, take = sample(sink, queue_bytes=3 * 4 * 8 * 4)

    def many():
        for i in range(20):
            took.append(i)
            take(str(i))
        done.set()

    took = []
    with cap:
        thread = threading.Thread(target=many)
        thread.start()
        assert sink.began.wait(30)
        assert not done.wait(0.3)
        assert took == [0, 1, 2, 3]  # three are held, and the fourth waits
        sink.go.set()
        thread.join(30)
        cap.flush()
        assert sink.synced == 1
        assert sink.ids == [str(i) for i in range(20)]
        sink.go.clear()
        thread = threading.Thread(target=lambda: [take(str(i)) for i in range(20, 23)], daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()  # there is room for three again
        sink.go.set()
    assert sink.ids == [str(i) for i in range(23)]
    assert sink.synced == 2
    assert sink.closed


def test_states_are_written_once_they_have_arrived():
    states = torch.zeros(1, 4, 8)

    class Copy:
        def synchronize(self):
            states.fill_(7)

    rows = Rows(states, Copy()).cut(0, 1, 3)
    sample = Sample("a", {}, torch.arange(2), None, {"final": [rows]}, cost=1)
    tensors = safetensors.torch.load(b"".join(encode(sample)))
    assert torch.equal(tensors["final"], torch.full((2, 8), 7.0))


def test_a_sample_larger_than_the_queue(sample):
    sink = Sink()
    sink.go.set()
    cap, take = sample(sink, queue_bytes=1)
    with cap:
        for i in range(5):
            take(str(i))
    assert sink.ids == [str(i) for i in range(5)]


def test_the_end_waits_for_all(sample):
    sink = Sink()
    cap, take = sample(sink)
    with cap:
        for i in range(5):
            take(str(i))
        threading.Timer(0.2, sink.go.set).start()
    assert sink.ids == [str(i) for i in range(5)]
    sink = Sink()
    sink.go.set()
    cap, take = sample(sink)

    def fail():
        with cap:
            take("a")
            raise KeyError("the caller's")

    with pytest.raises(KeyError):
        fail()
    assert sink.ids == ["a"]  # what was taken before is kept


def test_a_failure_is_raised_at_every_call_and_at_the_end(sample):
    sink = Sink(b=OSError(28, "No space left on device"))
    cap, take = sample(sink)
    message = r"write sample 'b': \[Errno 28\] No space left on device; 2 samples are not written"

    def run():
        with cap:
            for id in "abc":
                take(id)
            sink.go.set()
            for call in (cap.flush, lambda: take("d"), lambda: take("e")):
                with pytest.raises(hsx_capture.CaptureError, match=message) as e:
                    call()
                assert isinstance(e.value.__cause__, OSError)

    with pytest.raises(hsx_capture.CaptureError, match=message):
        run()
    assert sink.ids == ["a"]


def test_a_failure_wakes_who_waits(sample):
    sink = Sink(a=OSError("gone"))
    cap, take = sample(sink, queue_bytes=1)

    def run():
        with cap:
            take("a")
            threading.Timer(0.2, sink.go.set).start()
            with pytest.raises(hsx_capture.CaptureError, match="write sample 'a': gone; 1 samples are not written"):
                take("b")

    with pytest.raises(hsx_capture.CaptureError, match="gone"):
        run()


def test_refusals_are_told_once_and_stop_nothing(sample):
    sink = Sink(**{f"r{i}": RefusedError(f"no {i}", [f"r{i}"]) for i in range(7)})
    sink.go.set()
    cap, take = sample(sink)
    with cap:
        for id in [*(f"r{i}" for i in range(7)), "a"]:
            cap._writer.check = lambda: None  # tell nothing yet
            take(id)
        del cap._writer.check
        with pytest.raises(RefusedError, match="no 0; no 1; no 2; no 3; no 4 and 2 more") as e:
            cap.flush()
        assert e.value.ids == [f"r{i}" for i in range(7)]
        take("b")
    assert sink.ids == ["a", "b"]

    def at_the_end():
        with cap:
            take("r0")

    with pytest.raises(RefusedError, match="no 0"):
        at_the_end()

"""Takes hidden states out of a running PyTorch model, for `hsx ingest` and `hsx serve`.

with hsx_capture.Capture(model, layers=[2, 30, 58], final="post", to="spool:/dumps") as cap:
    for id, input_ids, loss_mask in samples:
        model(input_ids[None])
        cap.sample(id, input_ids, loss_mask)
"""

from hsx_capture._capture import Capture
from hsx_capture._errors import CaptureError, RefusedError

__all__ = ["Capture", "CaptureError", "RefusedError"]

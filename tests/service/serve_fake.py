"""Serves the sine engine until a signal: ``python -m tests.service.serve_fake [PORT] [FRAME_S] [DRAIN_S]``."""

from __future__ import annotations

import sys

from service.options import ServerOptions
from service.server import serve
from tests.service.fake_engine import FakeEngine

if __name__ == "__main__":
    port, frame_s, drain_s = (float(value) for value in [*sys.argv[1:], *["0", "0", "10"][len(sys.argv) - 1 :]])
    serve(FakeEngine(frame_s=frame_s), ServerOptions(port=int(port), drain_s=drain_s))

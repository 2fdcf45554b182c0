"""Networks, their weights and their compiled kernels.

Numba keeps compiled code on disk and looks only at the file of the outermost function to tell whether it is out of date; a kernel that
calls one of another file would stay as it was when that one changes. So the cache's folder is named by all sources with kernels.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path


def _cache_folder() -> Path:
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *(root.parent / "tts_spec" / "speculate").glob("*.py")]):
        source = path.read_bytes()
        if b"numba" in source:
            digest.update(source)
    return root / "__pycache__" / f"kernels-{digest.hexdigest()[:16]}"


if os.access(
    Path(__file__).parent, os.W_OK
):  # else numba takes the user's cache, and only an installation changes the sources
    os.environ.setdefault("NUMBA_CACHE_DIR", str(_cache_folder()))
    if "numba" in sys.modules:  # it was imported before, and has looked at the environment already
        sys.modules["numba"].core.config.reload_config()

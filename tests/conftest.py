"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bundles import write_tiny_bundle
from tts_spec.synthesizer import Synthesizer


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a small bundle with random weights."""
    return write_tiny_bundle(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny(tiny_bundle: Path) -> Iterator[Synthesizer]:
    """A synthesizer over random weights, float32."""
    synthesizer = Synthesizer.load(tiny_bundle, device="cpu", dtype="float32")
    yield synthesizer
    synthesizer.close()

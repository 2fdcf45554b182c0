"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.bundles import write_tiny_bundle
from tts_spec.synthesizer import Synthesizer

# The same examples every time, however slow the machine: whether a change may land is not left to chance. To look for more:
# ``pytest --hypothesis-profile explore``.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("explore"), derandomize=True)
settings.load_profile("steady")


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

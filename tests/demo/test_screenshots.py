"""The pictures in the README: the page in the middle of a sentence, on a desk and on a phone.

`make screenshots` makes them anew with the starter voice; without it they are made with the sine engine and thrown away.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.async_api import Browser, expect

from tests.demo.conftest import open_demo
from tests.service.fake_engine import FRAME, RATE, FakeEngine
from tts_spec.engine.port import Engine

pytestmark = [pytest.mark.anyio, pytest.mark.browser]
PICTURES: dict[str, dict[str, Any]] = {
    "desk": {"viewport": {"width": 1080, "height": 800}, "color_scheme": "light"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "device_scale_factor": 1.5},
}
FOLDER = os.environ.get("TTS_SPEC_SCREENSHOTS")
KEPT = Path(__file__).parents[2] / "demo" / "screenshots"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    if FOLDER is None:
        engine: Any = FakeEngine(frame_s=FRAME / RATE / 4)
    else:
        from tts_spec.engine.process import ProcessEngine
        from tts_spec.engine.worker import EngineSetup

        engine = ProcessEngine(EngineSetup())
    yield engine
    engine.close()


@pytest.mark.parametrize("name", PICTURES)
async def test_the_page_in_the_middle_of_a_sentence(
    browser: Browser, engine: FakeEngine, tmp_path: Path, name: str
) -> None:
    async with open_demo(browser, engine, context=PICTURES[name]) as demo:
        await demo.page.get_by_role("button", name="Compare").click()
        await expect(demo.page.locator("#comparison")).to_be_visible(timeout=60_000)
        await demo.page.get_by_role("button", name="Speak", exact=True).click()
        await demo.until("player.position > 2.6 && document.querySelector('#mirror mark')")
        await demo.page.mouse.move(0, 0)
        await demo.page.evaluate("scrollTo(0, 0)")
        png = await demo.page.screenshot(full_page=name == "desk")
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    assert picture.width == PICTURES[name]["viewport"]["width"] * PICTURES[name].get("device_scale_factor", 1)
    accent = {"light": (15, 118, 110), "dark": (79, 209, 192)}[PICTURES[name]["color_scheme"]]
    assert (np.abs(np.asarray(picture).astype(int) - accent).max(axis=2) < 8).mean() > 0.005  # button, waveform, chart
    path = Path(FOLDER or tmp_path) / f"{name}.webp"
    picture.save(path, quality=82, method=6)
    assert path.stat().st_size < 120_000


@pytest.mark.parametrize("name", PICTURES)
def test_the_readme_shows_the_pictures_there_are(name: str) -> None:
    readme = (KEPT.parents[1] / "README.md").read_text("utf-8")
    assert f"demo/screenshots/{name}.webp" in readme
    with Image.open(KEPT / f"{name}.webp") as picture:
        assert picture.width == PICTURES[name]["viewport"]["width"] * PICTURES[name].get("device_scale_factor", 1)

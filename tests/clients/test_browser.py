"""Chromium on the demo page with the starter voice: a turn, an interruption, an error, an empty text; Whisper hears what was played."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.audio.test_encoder import decode
from tests.clients.conftest import Servers, says_it
from tests.demo.conftest import PATIENCE_MS, browser  # noqa: F401 - a fixture
from tts_spec.audio.formats import AudioFormat

pytestmark = [pytest.mark.clients, pytest.mark.browser, pytest.mark.anyio]
TEXT = "The weather is nice today, and the sun is shining."


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def page_of(browser: Browser, servers: Servers) -> AsyncIterator[Page]:  # noqa: F811
    page = await browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    await page.goto(servers.url)
    await expect(page.get_by_label("Voice")).to_be_enabled()
    yield page
    await page.close()


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Text to speak").fill(text)
    await page.get_by_role("button", name="Speak", exact=True).click()


async def saved(page: Page, kind: str, folder: Path) -> bytes:
    async with page.expect_download() as download:
        await page.get_by_role("button", name=kind, exact=True).click()
    path = folder / kind
    await (await download.value).save_as(path)
    return path.read_bytes()


async def test_a_turn_is_heard_and_saved(browser: Browser, servers: Servers, tmp_path: Path) -> None:  # noqa: F811
    async with page_of(browser, servers) as page:
        await say(page, TEXT)
        await expect(page.locator("#status")).to_contain_text("Spoke", timeout=PATIENCE_MS)
        for kind in ("WAV", "MP3"):
            assert says_it(*decode(AudioFormat("mp3"), await saved(page, kind, tmp_path)))
        subtitles = (await saved(page, "Subtitles", tmp_path)).decode()
    assert "weather" in subtitles
    assert "-->" in subtitles


async def test_typing_speaks_and_barging_in_says_the_other_line(
    browser: Browser,  # noqa: F811
    servers: Servers,
    tmp_path: Path,
) -> None:
    async with page_of(browser, servers) as page:
        await page.get_by_label("Text to speak").fill("")
        await page.get_by_label("Interrupt it with").fill(TEXT)
        await page.get_by_role("switch", name="Speak as I type").check()
        await page.keyboard.type("Once upon a time there was a king, and he had a very long story to tell. " * 3)
        await expect(page.locator("#first-audio")).to_contain_text("ms", timeout=PATIENCE_MS)
        await page.get_by_role("button", name="Barge in").click()
        await expect(page.locator("#silence")).to_contain_text("ms")
        await expect(page.locator("#status")).to_contain_text("Spoke", timeout=PATIENCE_MS)
        samples, rate = decode(AudioFormat("wav"), await saved(page, "WAV", tmp_path))
    assert len(samples) / rate < 8
    assert says_it(samples, rate)
    assert servers.is_quiet()


async def test_an_error_and_an_empty_text_are_told_in_words(browser: Browser, servers: Servers) -> None:  # noqa: F811
    async with page_of(browser, servers) as page:
        await page.evaluate("document.querySelector('#voice').append(new Option('Nobody', 'nobody', true, true))")
        await say(page, TEXT)
        await expect(page.get_by_role("alert")).to_contain_text("This voice is no longer there")
        await page.get_by_label("Voice").select_option(index=0)
        await say(page, "...")
        await expect(page.locator("#status")).to_have_text("Nothing to speak in this text")
        await say(page, TEXT)  # and the next turn is as if nothing had been
        await expect(page.locator("#status")).to_contain_text("Spoke", timeout=PATIENCE_MS)

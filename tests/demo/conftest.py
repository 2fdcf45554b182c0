"""Fixtures of the demo tests: the real server with the sine engine, and headless Chromium on its page."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import groupby
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.service.client import PATIENCE_S, stream_url
from tests.service.fake_engine import FRAME, RATE, FakeEngine

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--autoplay-policy=no-user-gesture-required",
]  # fmt: skip
PATIENCE_MS = PATIENCE_S * 1000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    if shutil.which(CHROMIUM) is None:
        pytest.fail(f"the browser tests need {CHROMIUM}: apt-get install chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE_MS)
        yield browser
        await browser.close()


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    """Three times as fast as real time: quick, yet a long text is still being made when a test stops it."""
    engine = FakeEngine(frame_s=FRAME / RATE / 3)
    yield engine
    engine.close()


class Demo:
    """The page and an ear: an analyser behind the worklet, independent of what the page says about itself."""

    def __init__(self, page: Page, stream: str, server: AsyncExitStack) -> None:
        self.page = page
        self.stream = stream
        self.stop_server = server.aclose

    async def listen(self) -> None:
        """Attach the ear; from here on ``window.peak()`` and ``window.hz()`` tell what sounds now."""
        await self.page.evaluate(
            """async () => {
                const { player } = await import("/app.js");
                await player.start();
                const ear = player.context.createAnalyser();
                player.node.connect(ear);
                const wave = new Float32Array(ear.fftSize), bins = new Float32Array(ear.frequencyBinCount);
                window.peak = () => (ear.getFloatTimeDomainData(wave), wave.reduce((a, b) => Math.max(a, Math.abs(b)), 0));
                window.hz = () => (ear.getFloatFrequencyData(bins),
                    bins.indexOf(Math.max(...bins)) * player.context.sampleRate / ear.fftSize);
                window.player = player;
                window.marked = [];
                // Where the page last looked: a busy machine may run the observer much later. window.at: where it is to believe to be.
                const { get } = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(player), "position");
                let looked = 0;
                Object.defineProperty(player, "position", { get: () => (looked = window.at ?? get.call(player)) });
                new MutationObserver(() => {
                    const word = document.querySelector("#mirror mark")?.textContent;
                    if (word) window.marked.push([word, looked]);
                }).observe(document.querySelector("#mirror"), { childList: true });
            }"""
        )

    async def until(self, condition: str) -> Any:
        """Wait until a JavaScript expression is true; gives its value.

        Playwright's own ``wait_for_function`` needs ``eval`` in the page, which our content security policy forbids.
        """
        async with asyncio.timeout(PATIENCE_S):
            while not (value := await self.page.evaluate(condition)):  # noqa: ASYNC110 - the event is in the browser
                await asyncio.sleep(0.01)
            return value

    async def marked(self) -> list[tuple[str, float]]:
        """The words that were marked, one after another, and the second at which each was; the page may have had no time for some."""
        found = await self.page.evaluate("marked")
        return [next(same) for _, same in groupby(map(tuple, found), key=lambda each: each[0])]

    async def speak(self, text: str) -> None:
        await self.page.get_by_label("Text to speak").fill(text)
        await self.page.get_by_role("button", name="Speak").click()

    async def status(self, starts_with: str) -> str:
        return str(await self.until(f'document.querySelector("#status").textContent.match(/^{starts_with}.*/)?.[0]'))


@asynccontextmanager
async def open_demo(browser: Browser, engine: FakeEngine, **options: Any) -> AsyncIterator[Demo]:
    """The page of a fresh server, with the ear attached. An error on its console fails the test."""
    context = options.pop("context", {})
    allowed = options.pop("allowed_errors", "no error")
    query = options.pop("query", "")
    voices = options.pop("voices", True)
    async with AsyncExitStack() as server:
        stream = await server.enter_async_context(stream_url(engine, **options))
        page = await browser.new_page(**context)
        page.set_default_timeout(PATIENCE_MS)
        troubles: list[str] = []
        page.on("console", lambda line: troubles.append(line.text) if line.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        await page.goto(stream.replace("ws", "http", 1).removesuffix("/v1/stream") + query)
        demo = Demo(page, stream, server)
        if voices:
            await demo.until('!document.querySelector("#voice").disabled')
        await demo.listen()
        yield demo
        await page.close()
    assert [each for each in troubles if allowed not in each] == []

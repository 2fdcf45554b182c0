"""The panels of figures: latency while it speaks, and speculation with and without."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, expect

from tests.demo.conftest import open_demo
from tests.service.fake_engine import FakeEngine
from tts_spec.types import SpeechError

pytestmark = [pytest.mark.anyio, pytest.mark.browser]
TEXT = "Several words, so that there are some gaps between the pieces of sound."
COLOURS = """id => { const c = document.querySelector(id);
    const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) seen.add(data.slice(i, i + 3).join());
    return [...seen]; }"""
ACCENT = "15,118,110"


async def test_the_latency_panel_shows_gaps_and_the_speech_in_hand(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        await demo.speak(TEXT)
        await demo.until('parseFloat(document.querySelector("#in-hand").textContent) > 0.2')
        assert ACCENT in await demo.page.evaluate(COLOURS, "#buffer")
        await demo.status("Spoke")
        usual, longest = [
            int((await demo.page.text_content(each) or "").removesuffix("ms")) for each in ("#gap", "#longest-gap")
        ]
        assert 0 <= usual <= longest  # on a busy machine several may come at once
        assert longest > 0
        label = await demo.page.get_attribute("#buffer", "aria-label")
        assert re.fullmatch(r"Speech in hand over time, at most \d+\.\d seconds, \d+ underruns", label or "")


@pytest.fixture
def fast() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


async def test_with_and_without_speculation_side_by_side(browser: Browser, fast: FakeEngine) -> None:
    async with open_demo(browser, fast) as demo:
        await demo.page.get_by_label("Text to speak").fill(TEXT)
        await demo.page.get_by_role("button", name="Compare").click()
        table = demo.page.locator("#comparison")
        await expect(table).to_be_visible()
        rows = [await row.locator("th, td").all_text_contents() for row in await table.locator("tbody tr").all()]
        assert await demo.page.evaluate("player.last.played") == 0  # nothing is heard of it
        caption = await table.locator("caption").text_content()
    tokens = 4 * fast.sessions[0].frames
    assert rows[:3] == [
        ["Passes of the model", f"{tokens // 2:,}", f"{tokens:,}"],
        ["Tokens a pass", "2.00", "1.00"],
        ["Tokens a second", "1,000", "1,000"],
    ]
    assert re.fullmatch(rf"The same {tokens:,} tokens both ways, checksum [0-9a-f]{{8}}", caption or "")
    assert [session.options.drafter for session in fast.sessions] == [None, "none", "none", None]
    assert not any(session.options.live for session in fast.sessions)


async def test_tokens_that_differ_are_not_hidden(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        said = await demo.page.evaluate(
            """async () => {
                const { tabulate } = await import("/compare.js");
                const stats = { target_passes: 1, tau: 1, tokens: 1, rounds_s: 1, rtf: 1 };
                const table = document.querySelector("#comparison");
                tabulate({ on: { ...stats, token_hash: "a" }, off: { ...stats, token_hash: "b" } }, table);
                return table.caption.textContent; }"""
        )
    assert said.startswith("The tokens differ")


async def test_a_comparison_that_fails_is_told_in_words_and_escape_stops_one(
    browser: Browser, fake: FakeEngine
) -> None:
    async with open_demo(browser, fake) as demo:
        await demo.page.get_by_label("Text to speak").fill("word " * 300)
        fake.refusal = SpeechError("overloaded", "2 of 2")
        button = demo.page.get_by_role("button", name="Compar")
        await button.click()
        await expect(demo.page.get_by_role("alert")).to_contain_text("The server is busy")
        await expect(button).to_have_text("Compare")
        fake.refusal = None
        await button.click()
        await expect(button).to_have_text("Comparing, press to stop")
        await demo.until("1")
        await demo.page.keyboard.press("Escape")
        await expect(button).to_have_text("Compare")
        await expect(demo.page.get_by_role("alert")).to_be_hidden()
        await expect(demo.page.locator("#comparison")).to_be_hidden()
    assert await asyncio.to_thread(fake.wait_for, lambda: fake.active == 0)


async def test_on_a_phone_everything_can_be_touched(browser: Browser, fake: FakeEngine) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
    async with open_demo(browser, fake, context=phone) as demo:
        small = await demo.page.evaluate(
            """() => [...document.querySelectorAll("button, select, label.field, input[type=text]")]
                .filter((each) => each.getBoundingClientRect().height < 44).map((each) => each.id)"""
        )
        assert small == []
        await demo.page.get_by_role("button", name="Speak", exact=True).tap()
        await demo.until("peak() > 0.3")
        await demo.page.get_by_role("button", name="Stop").tap()
        await demo.until("peak() === 0")
        assert await demo.page.evaluate("document.documentElement.scrollWidth") <= 360

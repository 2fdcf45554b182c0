"""The demo page in headless Chromium: what is heard and what is shown."""

from __future__ import annotations

import asyncio
import re
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from service.keys import ApiKey
from service.messages import ErrorCode
from tests.demo.conftest import open_demo
from tests.service.client import connect, hear, send
from tests.service.fake_engine import FRAME, RATE, FakeEngine, pitch
from tts_spec.types import SpeechError

pytestmark = [pytest.mark.anyio, pytest.mark.browser]
DEMO = Path(__file__).parents[2] / "demo"
WORKLET = (DEMO / "worklet.js").read_text(encoding="utf-8")
ERRORS = (DEMO / "errors.js").read_text(encoding="utf-8")
LONG = "word " * 200
WORDS = ["Every", "word", "is", "marked,", "while", "it", "sounds."]
LINGER_S = 0.15  # utterance.js


def spoken_s(word: str) -> float:
    """As the sine engine speaks it."""
    return (6 + 2 * len(word)) * FRAME / RATE


async def test_a7_samples_arrive_in_the_worklet_and_sound(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        assert await demo.page.evaluate("peak()") == 0
        await demo.speak("One long and steady tone, please.")
        await demo.until(f"peak() > 0.3 && Math.abs(hz() - {pitch(0)}) < 15")
        status = await demo.status("Spoke")
        session = fake.sessions[0]
        assert status == f"Spoke {session.frames * FRAME / RATE:.1f} s"
        first_audio = await demo.page.text_content("#first-audio")
        assert first_audio is not None
        assert re.fullmatch(r"\d+ms", first_audio)
        assert await demo.page.text_content("#tau") == "2.00"


async def test_a_key_in_the_pages_address_opens_the_server(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake, api_keys=(ApiKey.of("a", "secret"),), query="/?api_key=secret") as demo:
        await demo.speak("Hello.")
        await demo.status("Spoke")


async def test_words_are_marked_on_the_audio_clock(browser: Browser, fake: FakeEngine) -> None:
    text = "Every 🙂 word is marked, while it sounds."  # the emoji is two UTF-16 units and one character
    async with open_demo(browser, fake) as demo:
        await demo.speak(text)
        await demo.status("Spoke")
        starts = dict(zip(WORDS, accumulate(WORDS, lambda at, word: at + spoken_s(word), initial=0.0), strict=False))
        marked = await demo.marked()
        assert marked
        assert [word for word in WORDS if word in dict(marked)] == [word for word, _ in marked]
        for word, position in marked:
            assert starts[word] <= position < starts[word] + spoken_s(word) + LINGER_S, word
        assert await demo.page.locator("#mirror mark").count() == 0
        await expect(demo.page.get_by_role("listitem")).to_have_text(["🙂 has no sound"])


async def test_every_word_is_marked_from_its_start_on(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        await demo.page.evaluate("window.at = 0")
        await demo.speak(" ".join(WORDS) + " " + LONG)  # it does not end meanwhile
        start = 0.0
        for last, word in pairwise(["", *WORDS]):
            for at, marked in ((start - 0.001, last), (start, word)):
                if marked:
                    await demo.page.evaluate(f"window.at = {at}")
                    await demo.until(f"document.querySelector('#mirror mark')?.textContent === '{marked}'")
            start += spoken_s(word)
        await demo.page.keyboard.press("Escape")
        await expect(demo.page.locator("#mirror mark")).to_have_count(0)


@pytest.mark.parametrize("how", ["button", "Escape"])
async def test_e38_stop_silences_at_once_and_cancels(browser: Browser, fake: FakeEngine, how: str) -> None:
    async with open_demo(browser, fake) as demo:
        await demo.speak(LONG)
        await demo.until("peak() > 0.3")
        # From the stop on no sample of the stream may leave but the one quantum that fades out.
        if how == "button":
            await demo.page.get_by_role("button", name="Stop").click()
        else:
            await demo.page.keyboard.press("Escape")
        await demo.until("peak() === 0")
        assert await asyncio.to_thread(fake.wait_for, lambda: fake.sessions[0].cancelled)
        assert await demo.page.text_content("#status") == "Stopped"
        assert await demo.page.evaluate("[player.position, player.queue.length]") == [0, 0]
        await expect(demo.page.get_by_role("button", name="Speak")).to_be_visible()


async def test_barge_in_plays_only_the_new_text(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        await demo.speak(LONG)
        await demo.until("peak() > 0.3")
        await demo.page.keyboard.press("Escape")
        await demo.page.evaluate("marked.length = 0")
        await demo.speak("Something else")
        assert await demo.status("Spoke") == f"Spoke {fake.sessions[1].frames * FRAME / RATE:.1f} s"
        assert {word for word, _ in await demo.marked()} <= {"Something", "else"}
    assert fake.sessions[1]._received == "Something else"


async def test_voice_speed_and_the_speculation_switch_are_sent(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        await demo.speak("First")
        await demo.status("Spoke")
        await demo.page.get_by_label("Voice").select_option("ben")
        await demo.page.get_by_label("Speed").fill("1.25")
        await demo.page.get_by_role("switch", name="Speculation").uncheck()
        await demo.speak("Second one")
        await demo.status("Spoke")
    first, second = (session.options for session in fake.sessions)
    assert (first.voice, first.speed, first.drafter) == ("ada", 1.0, None)
    assert (second.voice, second.speed, second.drafter) == ("ben", 1.25, "none")


async def test_the_strip_shows_every_token(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        await demo.speak("Some tokens")
        await demo.status("Spoke")
        tokens = 4 * fake.sessions[0].frames
        label = await demo.page.get_attribute("#tokens", "aria-label")
        assert label == f"{tokens} tokens, 67 % drafted and accepted"
        painted = await demo.page.evaluate(
            """() => { const c = document.querySelector("#tokens");
                const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
                const seen = new Set();
                for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) seen.add(data.slice(i, i + 3).join());
                return seen.size; }"""
        )
        assert painted >= 2  # accepted and corrected


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (SpeechError("overloaded", "2 of 2"), "The server is busy"),
        (SpeechError("too_long", "too many characters", "text"), "more text than the server takes"),
        (SpeechError("nonsense", "oops"), "Something went wrong on the server"),
    ],
)
async def test_i58_an_error_is_told_in_words(
    browser: Browser, fake: FakeEngine, refusal: SpeechError, words: str
) -> None:
    fake.refusal = refusal
    async with open_demo(browser, fake) as demo:
        await demo.speak("Hello")
        alert = demo.page.get_by_role("alert")
        await expect(alert).to_contain_text(words)
        await expect(alert).to_contain_text(refusal.message)
        assert await demo.page.text_content("#status") == "Not spoken"
        fake.refusal = None
        await demo.speak("Hello again")  # the page is usable after it
        await demo.status("Spoke")
        await expect(alert).to_be_hidden()


@pytest.mark.parametrize("code", ErrorCode)
def test_there_are_words_for_every_error(code: ErrorCode) -> None:
    assert re.search(rf'^  {code.value}: "[A-Z][^"]+\."', ERRORS, flags=re.MULTILINE)


async def test_a_full_server_is_told_in_words(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake, max_sessions=1, max_waiting=0) as demo, connect(demo.stream) as socket:
        await send(socket, {"type": "start"})
        await hear(socket, until="started")
        await demo.speak("Hello")
        await expect(demo.page.get_by_role("alert")).to_contain_text("The server is busy")


async def test_a_break_in_the_middle_is_told_and_what_came_is_played(browser: Browser) -> None:
    broken = FakeEngine(fail_after=6)
    try:
        async with open_demo(browser, broken) as demo:
            await demo.speak(LONG)
            await expect(demo.page.get_by_role("alert")).to_contain_text("Something went wrong")
            assert await demo.status("Broken off") == "Broken off"
            assert await demo.page.evaluate("player.loudest") > 0.3
    finally:
        broken.close()


async def test_a_server_that_is_gone_is_told_in_words(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake, allowed_errors="ERR_") as demo:
        await demo.stop_server()
        await demo.speak("Anyone?")
        await expect(demo.page.get_by_role("alert")).to_contain_text("The server cannot be reached")


async def test_a_key_that_is_missing_is_told_in_words(browser: Browser, fake: FakeEngine) -> None:
    keys = (ApiKey.of("a", "secret"),)
    async with open_demo(browser, fake, api_keys=keys, allowed_errors="401", voices=False) as demo:
        await expect(demo.page.get_by_role("alert")).to_contain_text("This server asks for an API key")


async def test_no_text_is_told_in_words(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        await demo.speak("  ")
        await expect(demo.page.get_by_role("alert")).to_contain_text("There is no text yet")
        await demo.speak("…")
        await demo.status("Nothing to speak in this text")


async def test_c19_underruns_are_counted_and_nothing_is_lost(browser: Browser) -> None:
    slow = FakeEngine(frame_s=2 * FRAME / RATE)  # half as fast as the ear
    try:
        async with open_demo(browser, slow) as demo:
            await demo.speak("Slow and late")
            await demo.status("Spoke")
            assert int(await demo.page.text_content("#underruns") or 0) > 0
            played = await demo.page.text_content("#played")
            assert played == f"{slow.sessions[0].frames * FRAME / RATE:.1f} s"
    finally:
        slow.close()


async def test_long_speech_waits_outside_the_ring(browser: Browser) -> None:
    fast = FakeEngine()
    try:
        async with open_demo(browser, fast) as demo:
            await demo.speak(LONG)  # 70 s against 20 s of ring
            await demo.until("player.queue.length > 0 && player.position > 0.5")
            sent, played = await demo.page.evaluate("[player.sent, player.last.played]")
            assert sent - played <= 20 * RATE
    finally:
        fast.close()


async def test_the_keyboard_is_enough(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        keyboard = demo.page.keyboard
        await demo.page.get_by_label("Text to speak").focus()
        reached = []
        for _ in range(7):
            await keyboard.press("Tab")
            reached.append(await demo.page.evaluate("document.activeElement.id"))
        # What cannot be done yet, barging in and saving, is passed over.
        assert reached == ["voice", "speed", "live", "speculation", "speak", "interruption", "compare"]
        await keyboard.press("Control+Enter")
        await demo.status("Spoke")
        for _ in range(5):
            await keyboard.press("Shift+Tab")
        fake.hold()  # so that it is not over before we look
        await keyboard.press("Enter")  # on the button
        await demo.status("Speaking")
        fake.release()
        assert await demo.page.get_attribute("#status", "role") == "status"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 360, 768, 1280])
async def test_the_page_fits_its_window(browser: Browser, fake: FakeEngine, width: int, scheme: str) -> None:
    context = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    async with open_demo(browser, fake, context=context) as demo:
        assert await demo.page.evaluate("document.documentElement.scrollWidth") <= width
        paper = await demo.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == {"light": "rgb(247, 246, 243)", "dark": "rgb(20, 20, 19)"}[scheme]


def test_the_jitter_buffer_is_within_60_to_160_ms() -> None:
    """latency.md 3.5."""
    value = {name: int(number) for name, number in re.findall(r"const (JITTER_\w+) = (\d+);", WORKLET)}
    assert 60 <= value["JITTER_START_MS"] < value["JITTER_MAX_MS"] <= 160

"""Speaking as one types, and barging in: what the server is sent, and what is heard."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.demo.conftest import Demo, open_demo
from tests.service.fake_engine import FRAME, RATE, FakeEngine

pytestmark = [pytest.mark.anyio, pytest.mark.browser]


async def follow(demo: Demo, before: list[str], now: str, *, hurry: bool = False) -> Any:
    """What is spoken of ``now`` when the box held each of ``before`` until then; it begins empty."""
    return await demo.page.evaluate(
        """async ([before, now, hurry]) => {
            const { Typing } = await import("/typing.js");
            const typing = new Typing([]);
            for (const text of before) typing.follow(Array.from(text));
            const { restart, base, points } = typing.follow(Array.from(now), hurry);
            return [restart, base, points.join("")];
        }""",
        [before, now, hurry],
    )


CASES: list[tuple[list[str], str, list[Any]]] = [
    ([], "Hel", [False, 0, ""]),  # the word may still change
    ([], "Hello ", [False, 0, "Hello "]),
    (["Hello "], "Hello there, you", [False, 6, "there, "]),
    (["Hello 🙂 "], "Hello 🙂 you ", [False, 8, "you "]),  # characters, not UTF-16 units
    (["One. Two three "], "One. Two four ", [True, 5, "Two four "]),  # the sentence again
    (["One. Two. "], "One. ", [True, 5, ""]),
    (["One. Two. "], "", [True, 0, ""]),
]


async def test_what_of_a_text_being_written_is_spoken(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        for before, now, spoken in CASES:
            assert await follow(demo, before, now) == spoken, (before, now)
        assert await follow(demo, ["Hello th"], "Hello th", hurry=True) == [
            False,
            6,
            "th",
        ]  # a pause makes the word whole


async def live(demo: Demo, box: str = "") -> None:
    """Speak as one types, after ``box``. The page's timers stand still, however slowly we type, until ``pause``."""
    await demo.page.get_by_label("Text to speak").fill(box)
    await demo.page.clock.install(time=0)
    await demo.page.clock.pause_at(3_600_000)
    await demo.page.get_by_role("switch", name="Speak as I type").check()


async def pause(demo: Demo) -> None:
    """Type no more."""
    await demo.page.clock.resume()


async def test_it_speaks_while_the_text_is_still_written(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        await live(demo)
        keyboard = demo.page.keyboard
        await keyboard.type("The first wordsss", delay=5)
        await keyboard.press("Backspace")
        await keyboard.press("Backspace")  # of a word that was not sent yet: nobody notices
        await keyboard.type(" are heard ", delay=5)
        await demo.until("peak() > 0.3")
        session = fake.sessions[0]
        assert not session._ended
        await keyboard.type("before the last are typed", delay=5)
        assert await asyncio.to_thread(fake.wait_for, lambda: session._received.endswith("last are "))
        await pause(demo)  # makes the last word whole, and ends it when all was heard
        assert await asyncio.to_thread(fake.wait_for, lambda: session._received.endswith("last are typed"))
        assert await demo.status("Spoke") == f"Spoke {session.frames * FRAME / RATE:.1f} s"
        marked = [word for word, _ in await demo.marked()]
    assert session._received == "The first words are heard before the last are typed"
    assert marked
    words = iter(session._received.split())
    assert all(word in words for word in marked), marked  # in their order
    assert len(fake.sessions) == 1


async def test_a_change_in_what_was_said_says_that_sentence_again(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        await live(demo)
        keyboard = demo.page.keyboard
        await keyboard.type("One. Two three four. ")
        await demo.until("peak() > 0.3")
        for _ in range(6):
            await keyboard.press("Backspace")
        await keyboard.type("five. ")
        await pause(demo)
        await demo.status("Spoke")
    assert fake.sessions[0].cancelled
    assert fake.sessions[-1]._received == "Two three five. "
    assert all(session.cancelled for session in fake.sessions[:-1])


async def test_what_is_in_the_box_already_is_not_spoken(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        await live(demo, "Nobody hears this. ")
        await demo.page.keyboard.press("Control+End")
        await demo.page.keyboard.type("But this. ")
        await pause(demo)
        await demo.status("Spoke")
        assert {word for word, _ in await demo.marked()} <= {"But", "this."}
    assert [session._received for session in fake.sessions] == ["But this. "]


async def test_e38_barging_in_silences_at_once_and_says_the_other_line(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        button = demo.page.get_by_role("button", name="Barge in")
        await expect(button).to_be_disabled()
        await demo.page.get_by_label("Interrupt it with").fill("Stop there")
        await demo.speak("word " * 200)
        await demo.until("peak() > 0.3")
        await button.click()
        # The page measures it before the other line sounds; a busy machine may look too late to see the level itself.
        await demo.until("document.querySelector('#silence').textContent.endsWith('ms')")
        await demo.until("peak() > 0.3")
        assert await demo.status("Spoke") == f"Spoke {fake.sessions[1].frames * FRAME / RATE:.1f} s"
        silence = await demo.page.text_content("#silence")
        assert silence is not None
        assert silence.endswith("ms")
        await expect(button).to_be_disabled()
    assert fake.sessions[0].cancelled
    assert [session._received for session in fake.sessions[1:]] == ["Stop there"]


async def test_barging_in_with_enter_and_with_nothing_to_say(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake) as demo:
        line = demo.page.get_by_label("Interrupt it with")
        await line.fill(" ")
        await demo.speak("word " * 200)
        await demo.until("peak() > 0.3")
        await line.press("Enter")
        await demo.until("peak() === 0")
        assert await demo.page.text_content("#status") == "Interrupted"
        assert await asyncio.to_thread(fake.wait_for, lambda: fake.sessions[0].cancelled)
    assert len(fake.sessions) == 1

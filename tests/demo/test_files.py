"""What the page saves: the sound as WAV and MP3, the words as subtitles."""

from __future__ import annotations

import re
import wave
from pathlib import Path

import numpy as np
import pytest
from playwright.async_api import Browser, expect

from tests.audio.test_encoder import decode
from tests.demo.conftest import Demo, open_demo
from tests.service.client import loudest_hz, speak
from tests.service.fake_engine import FRAME, RATE, FakeEngine, pitch
from tts_spec.audio.formats import AudioFormat
from tts_spec.subtitles import to_srt
from tts_spec.types import SpeechError, Word

pytestmark = [pytest.mark.anyio, pytest.mark.browser]
TEXT = "A few words that are long enough, taken together, to fill more than one line of subtitles."


async def save(demo: Demo, name: str, folder: Path) -> Path:
    async with demo.page.expect_download() as download:
        await demo.page.get_by_role("button", name=name, exact=True).click()
    found = await download.value
    path = folder / found.suggested_filename
    await found.save_as(path)
    return path


async def test_the_wav_is_what_was_heard(browser: Browser, fake: FakeEngine, tmp_path: Path) -> None:
    async with open_demo(browser, fake) as demo:
        await expect(demo.page.get_by_role("button", name="WAV")).to_be_disabled()
        await demo.speak(TEXT)
        await demo.status("Spoke")
        path = await save(demo, "WAV", tmp_path)
        wanted = await speak(demo.stream, TEXT)
    assert path.name == "speech.wav"
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, RATE)
        assert file.readframes(file.getnframes()) == wanted.audio


async def test_the_mp3_is_the_same_speech(browser: Browser, fake: FakeEngine, tmp_path: Path) -> None:
    async with open_demo(browser, fake) as demo:
        await demo.page.get_by_label("Voice").select_option("ben")
        await demo.page.get_by_label("Speed").fill("1.2")
        await demo.speak(TEXT)
        await demo.status("Spoke")
        path = await save(demo, "MP3", tmp_path)
    heard, saved = fake.sessions
    assert (saved.options.voice, saved.options.speed, saved.options.seed) == ("ben", 1.2, 0)
    assert saved._received == heard._received == TEXT
    samples, rate = decode(AudioFormat("mp3"), path.read_bytes())
    assert len(samples) / rate == pytest.approx(heard.frames * FRAME / RATE, abs=0.05)
    assert loudest_hz(np.asarray(samples), rate) == pytest.approx(pitch(0), abs=3)


async def test_an_mp3_that_cannot_be_made_is_told_in_words(browser: Browser, fake: FakeEngine) -> None:
    async with open_demo(browser, fake, allowed_errors="429") as demo:
        await demo.speak(TEXT)
        await demo.status("Spoke")
        fake.refusal = SpeechError("overloaded", "no room here")
        await demo.page.get_by_role("button", name="MP3").click()
        alert = demo.page.get_by_role("alert")
        await expect(alert).to_contain_text("The MP3 could not be made")
        await expect(alert).to_contain_text("no room here")
        await expect(demo.page.get_by_role("button", name="MP3")).to_be_enabled()


async def test_the_subtitles_are_those_of_the_library(browser: Browser, fake: FakeEngine, tmp_path: Path) -> None:
    async with open_demo(browser, fake) as demo:
        await demo.speak(TEXT)
        await demo.status("Spoke")
        path = await save(demo, "Subtitles", tmp_path)
        heard = await speak(demo.stream, TEXT, timestamps=True)
    words = [Word(**each) for message in heard.all("timestamps") for each in message["words"]]
    text = path.read_text("utf-8")
    assert path.name == "speech.srt"
    assert text == to_srt(words)
    blocks = re.findall(r"(\d+)\n(\d\d:\d\d:\d\d,\d{3}) --> (\d\d:\d\d:\d\d,\d{3})\n(.+)\n", text)
    assert [int(number) for number, *_ in blocks] == list(range(1, len(blocks) + 1))
    assert len(blocks) > 1
    assert " ".join(line for *_, line in blocks) == TEXT

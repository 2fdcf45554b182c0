"""pipecat's services against a server of ours: `python pipecat_services.py SERVICE-SCENARIO URL FOLDER`; prints one JSON object."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import aiohttp
from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.workers.runner import WorkerRunner

TEXT = "The weather is nice today, and the sun is shining."


class Ear(FrameProcessor):
    """Keeps what comes out of the service."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self.heard = asyncio.Event()  # audio
        self.stopped = asyncio.Event()
        self.failed = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        if isinstance(frame, TTSAudioRawFrame):
            self.heard.set()
        if isinstance(frame, TTSStoppedFrame):
            self.stopped.set()
        await self.push_frame(frame, direction)


class Mouth(FrameProcessor):
    """Keeps the errors that go up."""

    def __init__(self, ear: Ear) -> None:
        super().__init__()
        self.ear = ear
        self.errors: list[str] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, ErrorFrame):
            self.errors.append(frame.error)
            self.ear.failed.set()
        await self.push_frame(frame, direction)


def turn(*texts: str) -> Sequence[Frame]:
    """What an LLM's answer looks like in the pipeline."""
    return [LLMFullResponseStartFrame(), *(LLMTextFrame(text) for text in texts), LLMFullResponseEndFrame()]


Say = Callable[[Sequence[Frame]], Awaitable[None]]


async def converse(service: FrameProcessor, act: Callable[[Say, Ear], Awaitable[None]]) -> tuple[Ear, list[str]]:
    ear = Ear()
    mouth = Mouth(ear)
    params = PipelineParams(audio_out_sample_rate=24_000)
    worker = PipelineWorker(Pipeline([mouth, service, ear]), cancel_on_idle_timeout=False, params=params)
    ready = asyncio.Event()
    worker.add_event_handler("on_pipeline_started", lambda *_: ready.set())

    async def say(frames: Sequence[Frame]) -> None:
        for frame in frames:
            await worker.queue_frame(frame)

    async def play() -> None:
        async with asyncio.timeout(300):
            await ready.wait()
            await act(say, ear)
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), play())
    return ear, mouth.errors


def words(text: str) -> list[str]:
    return [word + " " for word in text.split()]


async def whole_turn(say: Say, ear: Ear) -> None:
    await say(turn(*words(TEXT)))
    await ear.stopped.wait()


async def interrupted(say: Say, ear: Ear) -> None:
    await say([LLMFullResponseStartFrame(), *(LLMTextFrame(word) for word in words((TEXT + " ") * 30))])
    await ear.heard.wait()
    await say([InterruptionFrame()])
    await asyncio.sleep(1.0)
    ear.frames.clear()
    ear.stopped.clear()
    await say(turn(*words(TEXT)))
    await ear.stopped.wait()


async def empty_text(say: Say, ear: Ear) -> None:
    await say(turn("..."))
    await asyncio.sleep(1.5)
    ear.frames.clear()
    ear.stopped.clear()
    await say(turn(*words(TEXT)))
    await ear.stopped.wait()


async def failing(say: Say, ear: Ear) -> None:
    await say(turn(*words(TEXT)))
    await ear.failed.wait()


SCENARIOS = {"turn": whole_turn, "interruption": interrupted, "empty": empty_text, "error": failing}


async def main() -> None:
    (name, scenario), url, folder = sys.argv[1].split("-"), sys.argv[2], Path(sys.argv[3])
    logger.remove()
    logger.add(sys.stderr, level="DEBUG")
    async with aiohttp.ClientSession() as session:
        voice = "nobody" if scenario == "error" else ("alloy" if name == "openai" else "nova")
        if name == "socket":
            service: FrameProcessor = ElevenLabsTTSService(
                api_key="anything",
                url=url.replace("http", "ws", 1),
                settings=ElevenLabsTTSService.Settings(voice=voice),
            )
        elif name == "http":
            service = ElevenLabsHttpTTSService(
                api_key="anything",
                base_url=url,
                aiohttp_session=session,
                settings=ElevenLabsHttpTTSService.Settings(voice=voice),
            )
        else:
            service = OpenAITTSService(
                api_key="anything", base_url=f"{url}/v1", settings=OpenAITTSService.Settings(voice=voice, speed=1.1)
            )
        ear, errors = await converse(service, SCENARIOS[scenario])
    audio = b"".join(frame.audio for frame in ear.frames if isinstance(frame, TTSAudioRawFrame))
    file = folder / f"{name}.pcm"
    file.write_bytes(audio)
    spoken = [frame for frame in ear.frames if isinstance(frame, TTSTextFrame)]
    starts = [frame.pts / 1e9 for frame in spoken if frame.pts]
    result = {
        "file": str(file),
        "seconds": len(audio) / 48_000,
        "text": " ".join(frame.text.strip() for frame in spoken),
        "span": max(starts) - min(starts) if starts else 0.0,
        "errors": errors,
    }
    print(json.dumps(result))


asyncio.run(main())

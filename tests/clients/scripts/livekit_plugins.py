"""livekit's plugins against a server of ours: `python livekit_plugins.py PLUGIN-SCENARIO URL FOLDER`; prints one JSON object."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from livekit.agents import APIConnectOptions, APIError, tts
from livekit.plugins import elevenlabs, openai

TEXT = "The weather is nice today, and the sun is shining."
ONCE = APIConnectOptions(max_retry=0, timeout=120)


def words(text: str) -> list[str]:
    return [word + " " for word in text.split()]


async def collect(stream: AsyncIterator[tts.SynthesizedAudio]) -> tuple[bytes, list[dict[str, object]]]:
    audio, timed = bytearray(), []
    async for event in stream:
        audio += bytes(event.frame.data)
        for word in event.frame.userdata.get("lk.timed_transcripts", []):
            timed.append({"text": str(word), "start": word.start_time})
    return bytes(audio), timed


async def spoken(plugin: tts.TTS, text: str) -> tuple[bytes, list[dict[str, object]]]:
    """One utterance the way the plugin's agents make it: by the word where it can, else whole."""
    if not plugin.capabilities.streaming:
        return await collect(plugin.synthesize(text, conn_options=ONCE))
    stream = plugin.stream(conn_options=ONCE)
    for word in words(text):
        stream.push_text(word)
    stream.end_input()
    try:
        return await collect(stream)
    finally:
        await stream.aclose()


async def interrupted(plugin: tts.TTS) -> None:
    """Leaves after the first audio, as when the user speaks."""
    if plugin.capabilities.streaming:
        stream = plugin.stream(conn_options=ONCE)
        for word in words((TEXT + " ") * 30):
            stream.push_text(word)
    else:
        stream = plugin.synthesize((TEXT + " ") * 30, conn_options=ONCE)
    await anext(aiter(stream))
    await stream.aclose()


async def main() -> None:
    (name, scenario), url, folder = sys.argv[1].split("-"), sys.argv[2], Path(sys.argv[3])
    async with aiohttp.ClientSession() as session:
        voice = "nobody" if scenario == "error" else "echo"
        if name == "elevenlabs":
            plugin: tts.TTS = elevenlabs.TTS(
                voice_id=voice, api_key="anything", base_url=f"{url}/v1", encoding="pcm_24000", http_session=session
            )
        elif name == "mp3":  # the plugin's own default
            plugin = elevenlabs.TTS(voice_id=voice, api_key="anything", base_url=f"{url}/v1", http_session=session)
        else:
            plugin = openai.TTS(voice=voice, api_key="anything", base_url=f"{url}/v1")
        result: dict[str, object] = {}
        async with asyncio.timeout(300):
            if scenario == "interruption":
                await interrupted(plugin)
            if scenario in ("error", "empty"):
                try:
                    audio, _ = await spoken(plugin, "..." if scenario == "empty" else TEXT)
                    result["silence"] = len(audio)
                except APIError as error:
                    result["error"] = f"{type(error).__name__}: {error.message}"
            if scenario != "error":
                audio, timed = await spoken(plugin, TEXT)
                file = folder / f"{name}.pcm"
                file.write_bytes(audio)
                result |= {
                    "file": str(file),
                    "seconds": len(audio) / 48_000,
                    "rate": plugin.sample_rate,
                    "timed": timed,
                }
        await plugin.aclose()
    print(json.dumps(result))


asyncio.run(main())

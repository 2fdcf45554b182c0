"""The `elevenlabs` SDK against a server of ours: `python elevenlabs_sdk.py SCENARIO URL FOLDER [TLS_URL]`; prints one JSON object."""

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from elevenlabs import VoiceSettings
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError

TEXT = "The weather is nice today, and the sun is shining."


def words() -> Iterator[str]:
    for word in TEXT.split():
        yield word + " "


def turn(client: ElevenLabs, realtime: ElevenLabs, folder: Path) -> dict[str, object]:
    """Every way to fetch a sentence: whole, streamed, timed, and spoken while it is written."""
    voice = client.voices.get_all().voices[0].voice_id
    speech = client.text_to_speech
    files = {
        "whole.mp3": b"".join(speech.convert(voice, text=TEXT, model_id="eleven_flash_v2_5")),
        "streamed.mp3": b"".join(
            speech.stream(voice, text=TEXT, voice_settings=VoiceSettings(stability=0.3, speed=1.1))
        ),
    }
    timed = speech.convert_with_timestamps(voice, text=TEXT, output_format="mp3_22050_32")
    files["timed.mp3"] = base64.b64decode(timed.audio_base_64)
    lines = list(speech.stream_with_timestamps(voice, text=TEXT))
    files["lines.mp3"] = b"".join(base64.b64decode(line.audio_base_64) for line in lines)
    # Everything left out that may be; then everything given.
    files["realtime.mp3"] = b"".join(realtime.text_to_speech.convert_realtime(voice, text=words()))
    files["settings.mp3"] = b"".join(
        realtime.text_to_speech.convert_realtime(
            voice,
            text=iter([TEXT]),
            model_id="eleven_turbo_v2_5",
            voice_settings=VoiceSettings(stability=0.5, speed=0.9),
        )
    )
    for name, data in files.items():
        (folder / name).write_bytes(data)
    alignment = timed.alignment
    return {
        "files": [str(folder / name) for name in files],
        "characters": "".join(alignment.characters),
        "ends": alignment.character_end_times_seconds[-1],
        "lines": "".join("".join(line.alignment.characters) for line in lines),
        "models": [model.model_id for model in client.models.list()],
    }


def interruption(realtime: ElevenLabs) -> dict[str, object]:
    """Leaves after the first audio."""
    voice = realtime.voices.get_all().voices[0].voice_id
    audio = realtime.text_to_speech.convert_realtime(voice, text=iter([TEXT + " "] * 40))
    first = next(audio)
    audio.close()
    return {"bytes": len(first)}


def refusal(client: ElevenLabs, realtime: ElevenLabs) -> dict[str, object]:
    """What the SDK raises for a voice that is not there."""
    found = {}
    for name, call in (
        ("http", lambda: list(client.text_to_speech.convert("nobody", text=TEXT))),
        ("socket", lambda: list(realtime.text_to_speech.convert_realtime("nobody", text=words()))),
    ):
        try:
            call()
        except ApiError as error:
            found[name] = {"status": error.status_code, "body": error.body}
    return found


def empty(client: ElevenLabs, realtime: ElevenLabs) -> dict[str, object]:
    """Nothing to say: an error over HTTP, silence over the socket."""
    voice = client.voices.get_all().voices[0].voice_id
    silence = [list(realtime.text_to_speech.convert_realtime(voice, text=iter(text))) for text in ([], ["..."], [" "])]
    try:
        list(client.text_to_speech.convert(voice, text="..."))
        status = 200
    except ApiError as error:
        status = error.status_code
    return {"silence": [len(each) for each in silence], "status": status}


def main() -> None:
    scenario, url, folder, tls_url = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    client = ElevenLabs(base_url=url, api_key="anything")
    realtime = ElevenLabs(base_url=tls_url, api_key="anything")  # the SDK speaks wss only
    scenarios = {
        "turn": lambda: turn(client, realtime, folder),
        "interruption": lambda: interruption(realtime),
        "error": lambda: refusal(client, realtime),
        "empty": lambda: empty(client, realtime),
    }
    print(json.dumps(scenarios[scenario]()))


main()

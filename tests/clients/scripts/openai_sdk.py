"""The `openai` SDK against a server of ours: `python openai_sdk.py SCENARIO URL FOLDER`; prints one JSON object."""

import base64
import json
import sys
from pathlib import Path

import openai

TEXT = "The weather is nice today, and the sun is shining."


def turn(client: openai.OpenAI, folder: Path) -> dict[str, object]:
    """Every way to fetch a sentence: whole, streamed, and as events."""
    whole = folder / "whole.mp3"
    whole.write_bytes(client.audio.speech.create(model="tts-1", voice="alloy", input=TEXT).content)
    streamed = folder / "streamed.wav"
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="echo", input=TEXT, response_format="wav", speed=1.1
    ) as answer:
        request_id = answer.request_id
        pieces = list(answer.iter_bytes())
    streamed.write_bytes(b"".join(pieces))
    events = folder / "events.opus"
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="nova", input=TEXT, response_format="opus", stream_format="sse"
    ) as answer:
        lines = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    events.write_bytes(b"".join(base64.b64decode(line["audio"]) for line in lines[:-1]))
    return {
        "files": [str(whole), str(streamed), str(events)],
        "pieces": len(pieces),
        "request_id": request_id,
        "last": lines[-1],
        "models": [model.id for model in client.models.list()],
    }


def interruption(client: openai.OpenAI, folder: Path) -> dict[str, object]:
    """Leaves after the first bytes."""
    with client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=TEXT * 40, response_format="pcm"
    ) as answer:
        first = next(answer.iter_bytes(1024))
    return {"bytes": len(first)}


def refusal(client: openai.OpenAI, **fields: object) -> dict[str, object]:
    """What the SDK raises."""
    try:
        client.audio.speech.create(**{"model": "tts-1", "voice": "alloy", "input": TEXT, **fields})
    except openai.APIStatusError as error:
        return {
            "type": type(error).__name__,
            "status": error.status_code,
            "param": error.param,
            "message": error.message,
        }
    return {"type": None}


def main() -> None:
    scenario, url, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="anything", max_retries=0)
    scenarios = {
        "turn": lambda: turn(client, folder),
        "interruption": lambda: interruption(client, folder),
        "error": lambda: refusal(client, voice="nobody"),
        "empty": lambda: refusal(client, input="..."),
    }
    print(json.dumps(scenarios[scenario]()))


main()

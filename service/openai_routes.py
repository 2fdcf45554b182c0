"""The routes of OpenAI's speech API. Meaning and looks: ``openai_api.py``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from service import openai_api
from service.http_speech import AudioBody, HttpSpeech, let_in, read_json, telling
from service.streams import Streams


def openai_routes(streams: Streams) -> list[Route]:
    """``/v1/audio/...``; ``/v1/models`` is shared with another API and stands in ``app.py``."""
    voices = streams.studio.voices

    async def speech(request: Request) -> Response:
        client = let_in(streams, request)
        body = await read_json(request, streams.options.max_body_bytes)
        order, stream_format = openai_api.read_order(body, voices)
        if stream_format == "sse":
            return HttpSpeech(
                streams, client, order, openai_api.EventBody(len(order.text)), {"Cache-Control": "no-cache"}
            )
        return HttpSpeech(streams, client, order, AudioBody(order.format.media_type, openai_api.refuse), {})

    async def audio_voices(request: Request) -> Response:
        let_in(streams, request)
        return JSONResponse(openai_api.audio_voices(voices))

    async def audio_models(request: Request) -> Response:
        let_in(streams, request)
        return JSONResponse(openai_api.audio_models())

    return [
        Route("/v1/audio/speech", telling(openai_api.refuse, speech), methods=["POST"]),
        Route("/v1/audio/voices", telling(openai_api.refuse, audio_voices)),
        Route("/v1/audio/models", telling(openai_api.refuse, audio_models)),
    ]

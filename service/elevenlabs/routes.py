"""The routes of ElevenLabs' API. Meaning and looks: ``http_api.py`` and ``sockets.py``."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from service.elevenlabs import http_api
from service.elevenlabs.http_api import TimedLines, TimedWhole
from service.elevenlabs.settings import plain_settings, read_settings
from service.elevenlabs.sockets import MultiStreamInput, StreamInput
from service.http_speech import AnswerShape, AudioBody, Handler, HttpSpeech, SpeechOrder, let_in, read_json, telling
from service.streams import Streams
from tts_spec.types import SpeechError

PATH = "/v1/text-to-speech/{voice_id}"


def elevenlabs_routes(streams: Streams) -> list[BaseRoute]:
    """``/v1/text-to-speech/...`` and ``/v2/voices``; ``/v1/voices`` and ``/v1/models`` are shared and stand in ``app.py``."""
    voices = streams.studio.voices

    def speech(shape: Callable[[SpeechOrder], AnswerShape], *, live: bool) -> Handler:
        async def handler(request: Request) -> Response:
            client = let_in(streams, request)
            body = await read_json(request, streams.options.max_body_bytes)
            voice = request.path_params["voice_id"]
            order = http_api.read_order(voice, request.query_params, body, voices, live=live)
            return HttpSpeech(streams, client, order, shape(order), {})

        return telling(http_api.refuse, handler)

    def socket(kind: type[StreamInput] | type[MultiStreamInput]) -> Callable[[WebSocket], object]:
        async def serve(websocket: WebSocket) -> None:
            refusal = None
            try:
                settings = read_settings(
                    websocket.path_params["voice_id"], websocket.query_params, voices, streams.options
                )
            except SpeechError as error:
                settings, refusal = plain_settings(streams.options), error
            await streams.serve(websocket, kind(settings, refusal), key_may_follow=True)

        return serve

    async def voice(request: Request) -> Response:
        let_in(streams, request)
        return JSONResponse(http_api.voice_entry(voices, request.path_params["voice_id"]))

    async def search(request: Request) -> Response:
        let_in(streams, request)
        found = [http_api.voice_entry(voices, each.name) for each in voices.voices]
        return JSONResponse({"voices": found, "has_more": False, "total_count": len(found), "next_page_token": None})

    def whole(order: SpeechOrder) -> AnswerShape:
        return AudioBody(order.format.media_type, http_api.refuse)

    return [
        Route(PATH, speech(whole, live=False), methods=["POST"]),
        Route(f"{PATH}/stream", speech(whole, live=True), methods=["POST"]),
        Route(f"{PATH}/with-timestamps", speech(lambda order: TimedWhole(order.text), live=False), methods=["POST"]),
        Route(
            f"{PATH}/stream/with-timestamps", speech(lambda order: TimedLines(order.text), live=True), methods=["POST"]
        ),
        WebSocketRoute(f"{PATH}/stream-input", socket(StreamInput)),
        WebSocketRoute(f"{PATH}/multi-stream-input", socket(MultiStreamInput)),
        Route("/v1/voices/{voice_id}", telling(http_api.refuse, voice)),
        Route("/v2/voices", telling(http_api.refuse, search)),
    ]

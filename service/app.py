"""The HTTP and WebSocket routes: demo page, health, metrics, voices, the stream. Starts no server and no engine."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from service import openai_api
from service.elevenlabs import http_api
from service.elevenlabs.routes import elevenlabs_routes
from service.http_speech import let_in, telling
from service.openai_routes import openai_routes
from service.protocol import StreamProtocol
from service.streams import Streams

DEMO = Path(__file__).resolve().parent.parent / "demo"
SCRIPTS = ("app", "audio", "compare", "dom", "errors", "files", "stream", "typing", "utterance", "view", "worklet")
FONTS = ("roboto-regular", "roboto-medium", "roboto-bold")
# path -> (file in demo/, content type)
DEMO_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in SCRIPTS},
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{f"/{name}.woff2": (f"{name}.woff2", "font/woff2") for name in FONTS},
}

SECURITY_HEADERS = {
    # Nothing inline, nothing from elsewhere; 'self' in connect-src covers the WebSocket of the same host.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class _SecurityHeaders:
    """Adds ``SECURITY_HEADERS`` to every HTTP answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def create_app(streams: Streams) -> Starlette:
    """The application. The demo's files are read here, once; raises ``FileNotFoundError`` when one is missing."""
    engine, options = streams.engine, streams.options

    async def health(_: Request) -> Response:
        info = engine.info
        return JSONResponse(
            {
                "status": "ok",
                "engine": {
                    "sample_rate": info.sample_rate,
                    "voices": [voice.name for voice in info.voices],
                    "drafters": info.drafters,
                    "default_drafter": info.default_drafter,
                    "active": engine.active,
                },
                "sessions": {"active": len(streams), "limit": options.max_sessions},
            }
        )

    async def ready(_: Request) -> Response:
        return JSONResponse({"ready": streams.ready}, 200 if streams.ready else 503)

    async def metrics(request: Request) -> Response:
        let_in(streams, request)
        return Response(streams.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    # Two paths on which the APIs meet. Voices have the fields of both; models have other forms, so the key's header decides.
    async def voices(request: Request) -> Response:
        let_in(streams, request)
        known = [http_api.voice_entry(streams.studio.voices, voice.name) for voice in engine.info.voices]
        return JSONResponse({"voices": known, "default": streams.studio.voices.default})

    async def models(request: Request) -> Response:
        let_in(streams, request)
        return JSONResponse(http_api.models() if "xi-api-key" in request.headers else openai_api.models())

    async def stream(socket: WebSocket) -> None:
        await streams.serve(socket, StreamProtocol(engine.info, options))

    async def on_http_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": {"message": error.detail}}, error.status_code, error.headers)

    return Starlette(
        routes=[
            *(_demo_route(path, DEMO / name, kind) for path, (name, kind) in DEMO_FILES.items()),
            Route("/health", health),
            Route("/ready", ready),
            Route("/metrics", telling(openai_api.refuse, metrics)),
            Route("/v1/voices", telling(http_api.refuse, voices)),
            Route("/v1/models", telling(openai_api.refuse, models)),
            *openai_routes(streams),
            *elevenlabs_routes(streams),
            WebSocketRoute("/v1/stream", stream),
        ],
        middleware=[
            Middleware(_SecurityHeaders),
            Middleware(
                CORSMiddleware,
                allow_origins=options.allowed_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=[
                    "X-Request-ID",
                    "X-Audio-Encoding",
                    "X-Audio-Sample-Rate",
                    "X-Audio-Channels",
                    "Retry-After",
                ],
            ),
        ],
        exception_handlers={HTTPException: on_http_error},
    )


def _demo_route(path: str, file: Path, kind: str) -> Route:
    body = file.read_bytes()

    async def page(_: Request) -> Response:
        return Response(body, media_type=kind)

    return Route(path, page)

"""One HTTP answer of speech: the status line waits for the first audio, and what breaks later breaks the body.

What the bytes look like is the business of an ``AnswerShape`` (``openai_api.py``, ``elevenlabs/``). Knows ASGI and asyncio.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.credentials import shown_key
from service.keys import Client
from service.messages import ErrorCode
from service.metrics import StreamMeter
from service.speech import Piece, Speech
from service.streams import Streams
from tts_spec.audio.formats import AudioFormat
from tts_spec.types import SpeakOptions, SpeechError

logger = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]
Refuse = Callable[[SpeechError, int], Response]  # an error and its HTTP status in the API's own form

FORBIDDEN_ORIGIN = "forbidden_origin"
STATUS: dict[str, int] = {
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.TOO_BIG: 413,
    ErrorCode.OVERLOADED: 429,
    ErrorCode.QUOTA_EXCEEDED: 429,
    ErrorCode.SLOW_READER: 408,
    ErrorCode.SHUTTING_DOWN: 503,
    ErrorCode.INVALID_JSON: 400,
    ErrorCode.MISSING_FIELD: 400,
    ErrorCode.INVALID_VALUE: 400,
    ErrorCode.UNKNOWN_VOICE: 400,
    ErrorCode.TOO_LONG: 400,
    FORBIDDEN_ORIGIN: 403,
}


class AnswerShape(Protocol):
    """How one API tells speech in an HTTP body."""

    media_type: str

    def piece(self, piece: Piece) -> bytes:
        """The bytes for one piece; empty while there is nothing to tell."""

    def end(self, last: Piece) -> bytes:
        """The bytes after the last piece."""

    def broken(self, error: SpeechError) -> bytes | None:
        """The bytes that tell of an error after audio was sent; None: only an aborted body can."""

    def refusal(self, error: SpeechError, status: int) -> Response:
        """The answer when there is no audio."""


class AudioBody:
    """The ``AnswerShape`` of the bytes of a format and nothing else; the base of those that say more."""

    def __init__(self, media_type: str, refuse: Refuse) -> None:
        self.media_type = media_type
        self._refuse = refuse

    def piece(self, piece: Piece) -> bytes:
        """See ``AnswerShape``."""
        return piece.audio

    def end(self, last: Piece) -> bytes:
        """See ``AnswerShape``."""
        return b""

    def broken(self, error: SpeechError) -> bytes | None:
        """See ``AnswerShape``. Nothing may stand between samples: the body breaks off."""
        return None

    def refusal(self, error: SpeechError, status: int) -> Response:
        """See ``AnswerShape``."""
        return self._refuse(error, status)


@dataclass(frozen=True, slots=True)
class SpeechOrder:
    """What to say, and how."""

    text: str
    options: SpeakOptions
    format: AudioFormat
    tempo: float = 1.0  # beyond the voice's own speeds


def status_of(error: SpeechError) -> int:
    """The HTTP status of an error; 500 for what no client can have caused."""
    return STATUS.get(error.code, 500)


def retry_headers(error: SpeechError) -> dict[str, str]:
    """``Retry-After`` where coming back later helps, and for the OpenAI SDK whether it should."""
    if error.code == ErrorCode.QUOTA_EXCEEDED:
        return {"x-should-retry": "false"}
    if error.code not in (ErrorCode.OVERLOADED, ErrorCode.SHUTTING_DOWN):
        return {}
    wait_ms = error.retry_after_ms if error.retry_after_ms is not None else 1000
    return {"Retry-After": str(max(1, math.ceil(wait_ms / 1000))), "retry-after-ms": str(wait_ms)}


async def read_json(request: Request, limit: int) -> dict[str, Any]:
    """The body, a JSON object of at most ``limit`` bytes. Raises ``SpeechError`` ``too_big``, ``invalid_json`` or ``invalid_value``."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise SpeechError(ErrorCode.TOO_BIG, f"the body has more than {limit} bytes; allowed: up to {limit}")
    try:
        value = json.loads(body)
    except ValueError:
        raise SpeechError(ErrorCode.INVALID_JSON, "the body is not JSON; allowed: a JSON object") from None
    if not isinstance(value, dict):
        raise SpeechError(ErrorCode.INVALID_VALUE, f"the body is a {type(value).__name__}; allowed: a JSON object")
    return value


def let_in(streams: Streams, request: Request) -> Client:
    """Who asks. Raises ``SpeechError`` when they may not: another site's page, no key, a wrong one."""
    if not streams.is_welcome(request):
        raise SpeechError(FORBIDDEN_ORIGIN, "a page of this origin may not use this server")
    return streams.studio.keys.client(shown_key(request.headers, request.query_params))


def telling(refuse: Refuse, handler: Handler) -> Handler:
    """``handler``, with what it refuses told in the API's own form."""

    async def told(request: Request) -> Response:
        try:
            return await handler(request)
        except SpeechError as error:
            response = refuse(error, status_of(error))
            response.headers.update(retry_headers(error))
            return response

    return told


class HttpSpeech(Response):
    """Speaks an order as the answer to one request."""

    def __init__(
        self, streams: Streams, client: Client, order: SpeechOrder, shape: AnswerShape, headers: Mapping[str, str]
    ) -> None:
        self.background = None
        self._streams = streams
        self._client = client
        self._order = order
        self._shape = shape
        self._extra = {
            "X-Request-ID": uuid.uuid4().hex,
            "X-Audio-Encoding": order.format.codec,
            "X-Audio-Sample-Rate": str(order.format.rate),
            "X-Audio-Channels": "1",
            **headers,
        }
        self._meter = StreamMeter(streams.metrics)
        self._started = False
        # Bounded by the engine, which pauses while too many pieces are not consumed. None: the client has left.
        self._events: asyncio.Queue[Piece | SpeechError | None] = asyncio.Queue()

    @property
    def busy(self) -> bool:
        return True

    def fail(self, error: SpeechError) -> None:
        """See ``streams.Visit``."""
        self._events.put_nowait(error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._streams.admit()
            self._client.enter()
        except SpeechError as error:
            self._meter.outcome(error.code)
            self._meter.over()
            await self._refuse(error, scope, receive, send)
            return
        leaving = asyncio.create_task(self._watch(receive))
        speech: Speech | None = None
        try:
            with self._streams.visit(self):
                try:
                    self._client.spend(len(self._order.text))
                    self._meter.text(len(self._order.text))
                    speech = self._streams.studio.speak(
                        self._order.options, self._order.format, self._events.put_nowait, self._order.tempo
                    )
                    speech.text(self._order.text)
                    speech.end()
                    await self._tell(speech, send)
                except SpeechError as error:
                    self._meter.outcome(error.code if error.code in set(ErrorCode) else ErrorCode.INTERNAL)
                    await self._break(error, scope, receive, send)
        finally:
            leaving.cancel()
            if speech is not None:
                speech.cancel()
            self._client.leave()
            self._meter.over()

    async def _tell(self, speech: Speech, send: Send) -> None:
        """Write all there is to say, or as much as the client stays for."""
        while (event := await self._events.get()) is not None:
            if isinstance(event, SpeechError):
                raise event
            last = event.stats is not None
            data = self._shape.piece(event)
            if last:
                if not self._started and not data and event.end_s == 0:
                    raise SpeechError(
                        ErrorCode.INVALID_VALUE,
                        "there is nothing to speak in the text; allowed: letters or digits",
                        "text",
                    )
                data += self._shape.end(event)
            if data or last:
                await self._write(data, send, more=not last)
                self._meter.audio(event.seconds)
            speech.consumed()
            if last:
                self._meter.outcome("complete")
                return

    async def _write(self, data: bytes, send: Send, *, more: bool) -> None:
        limit = self._streams.options.stall_s
        try:
            async with asyncio.timeout(limit):
                if not self._started:
                    self._started = True
                    headers = {"Content-Type": self._shape.media_type, **self._extra}
                    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
                    await send({"type": "http.response.start", "status": 200, "headers": raw})
                await send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            message = f"nothing could be written for {limit:g} s; allowed: a client that reads"
            raise SpeechError(ErrorCode.SLOW_READER, message) from None

    async def _break(self, error: SpeechError, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._started:
            await self._refuse(error, scope, receive, send)
            return
        logger.warning("a body was broken off: %s", error.code)
        if error.code != ErrorCode.SLOW_READER and (told := self._shape.broken(error)) is not None:
            await send({"type": "http.response.body", "body": told, "more_body": False})
        # Unless the API has words for it the body stays open and the server, finding it so, drops the connection: an end without
        # an end is the only way to say that what was sent is not all.

    async def _refuse(self, error: SpeechError, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._shape.refusal(error, status_of(error))
        response.headers.update(retry_headers(error) | {"X-Request-ID": self._extra["X-Request-ID"]})
        await response(scope, receive, send)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._events.put_nowait(None)

"""Pipes text from standard input to a WAV file over the native protocol (service/protocol.md).

    python demo/client.py -o out.wav < text.txt

The text is sent as it arrives, so the speech of the first words may be there before the last ones are typed. The last
line on standard error is one JSON object with the server's counters. Needs the ``websockets`` package and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import codecs
import json
import os
import sys
import threading
import wave
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection

PIECE_BYTES = 4096  # read at a time; well under the server's limit on a message


class SpeakError(Exception):
    """Something the user has to know; ends the program with exit code 1."""


async def pieces(descriptor: int) -> AsyncIterator[str]:
    """Text of a file descriptor as it arrives; never half a character."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)

    def read() -> None:
        data = b"."
        with suppress(RuntimeError):  # the loop is gone: the server had an error
            while data:
                data = os.read(descriptor, PIECE_BYTES)
                asyncio.run_coroutine_threadsafe(arrived.put(data), loop).result()

    # A thread that may be left behind: a read that waits for a terminal cannot be interrupted.
    threading.Thread(target=read, daemon=True).start()
    decoder = codecs.getincrementaldecoder("utf-8")()
    while data := await arrived.get():
        if text := decoder.decode(data):
            yield text
    yield decoder.decode(b"", final=True)


async def send_text(socket: ClientConnection) -> None:
    """Sends standard input, then ``end``. A closed socket is for the receiver to report."""
    with suppress(websockets.ConnectionClosed):
        async for text in pieces(sys.stdin.fileno()):
            await socket.send(json.dumps({"type": "text", "text": text}))
        await socket.send(json.dumps({"type": "end"}))


async def receive(socket: ClientConnection, out: Path, words: list[dict[str, Any]]) -> dict[str, Any]:
    """Writes audio to ``out`` until the server says that it is over; gives the stats."""
    stats: dict[str, Any] | None = None
    with wave.open(str(out), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        try:
            while True:
                data = await socket.recv()
                if isinstance(data, bytes):
                    file.writeframesraw(data)
                    continue
                message = json.loads(data)
                match message["type"]:
                    case "started":
                        file.setframerate(message["sample_rate"])
                    case "timestamps":
                        words.extend(message["words"])
                    case "warning":
                        print(f"warning: {message['message']}", file=sys.stderr)
                    case "error":
                        raise SpeakError(f"{message['message']} ({message['code']})")
                    case "end":
                        stats = message["stats"]
        except websockets.ConnectionClosed as closed:
            if stats is None:
                raise SpeakError(f"the connection was lost: {closed}") from None
    return stats


async def speak(options: argparse.Namespace) -> None:
    start = {"type": "start", "speed": options.speed, "seed": options.seed, "timestamps": options.words is not None}
    if options.voice is not None:
        start["voice"] = options.voice
    words: list[dict[str, Any]] = []
    async with websockets.connect(options.url, compression=None) as socket:
        await socket.send(json.dumps(start))
        sender = asyncio.create_task(send_text(socket))
        try:
            stats = await receive(socket, options.output, words)
        finally:
            sender.cancel()
            with suppress(asyncio.CancelledError):
                await sender
    if options.words is not None:
        options.words.write_text(json.dumps(words, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(stats), file=sys.stderr)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speak standard input into a WAV file.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the WAV file to write")
    parser.add_argument("--url", default="ws://127.0.0.1:8000/v1/stream", help="the server's stream (%(default)s)")
    parser.add_argument("--voice", help="a name from /v1/voices")
    parser.add_argument("--speed", type=float, default=1.0, help="1 = the voice's own pace (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same speech (%(default)s)")
    parser.add_argument("--words", type=Path, metavar="FILE", help="write the words and their times as JSON")
    return parser.parse_args(arguments)


def main() -> int:
    options = parse()
    try:
        asyncio.run(speak(options))
    except SpeakError as error:
        reason = str(error)
    except (OSError, websockets.InvalidURI, websockets.InvalidHandshake) as error:
        reason = f"cannot use {options.url} or write {options.output}: {error}"
    except UnicodeDecodeError as error:
        reason = f"standard input is not UTF-8: {error}"
    else:
        return 0
    print(f"error: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

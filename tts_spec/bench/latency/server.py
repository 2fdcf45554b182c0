"""Starts ``tts-spec serve`` as a process of its own on a free port, and ends it. Knows the command, not what it does."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from tts_spec.bench.latency.gauges import Gauges
from tts_spec.types import SpeechError

READY_WITHIN_S = 600.0  # the first start on a machine compiles
STOP_WITHIN_S = 15.0
COMMAND = (sys.executable, "-c", "from tts_spec.cli import main; main()", "serve", "--port", "0")


@asynccontextmanager
async def serving(arguments: Sequence[str], command: Sequence[str] = COMMAND) -> AsyncIterator[str]:
    """A warm server while the block runs; gives its address. Raises SpeechError when it does not come up."""
    process = await asyncio.create_subprocess_exec(*command, *arguments, stdout=PIPE)
    try:
        yield await _ready(process)
    finally:
        await _stop(process)


async def _ready(process: Process) -> str:
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            url = await _address(process)
            gauges = Gauges(url)
            while not await gauges.ready():  # noqa: ASYNC110 - the event is in the server
                await asyncio.sleep(0.1)
            await gauges.close()
            return url
    except TimeoutError:
        raise SpeechError("not_ready", f"the server was not ready within {READY_WITHIN_S:g} s") from None


async def _address(process: Process) -> str:
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        if found := re.search(r"Listening on (http://\S+)", line):
            return found[1]
    raise SpeechError("not_ready", f"the server ended with exit code {await process.wait()}; its error is above")


async def _stop(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_WITHIN_S):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()

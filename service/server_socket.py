"""The listening socket, set up so that audio leaves at once and little of it waits in the kernel."""

from __future__ import annotations

import socket

from service.options import ServerOptions

# What the kernel may hold back for a slow reader. The default grows to megabytes: a minute of audio that is generated
# although nobody hears it, and ahead of which no ping gets through.
SEND_BUFFER_BYTES = 65_536


def listen(host: str, port: int, options: ServerOptions) -> socket.socket:
    """Bound, not yet listening; connections inherit what is set here. Raises ``OSError`` when the address cannot be had."""
    family, kind, proto, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
    )[0]
    # The explicit protocol number matters: asyncio sets TCP_NODELAY only on sockets that have it.
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # a peer that acknowledges but never reads does not stay for ever
            patience = 2 * options.stall_s + options.linger_s
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(patience * 1000))
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener

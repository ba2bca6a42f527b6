"""Options of our sockets: a dead peer is noticed within a minute, with no traffic.

Rules: only options that this platform's socket module knows are set.
"""

import socket

_WANTED = (
    ("TCP_KEEPIDLE", 20),  # seconds of silence before the first question
    ("TCP_KEEPINTVL", 10),  # seconds between questions
    ("TCP_KEEPCNT", 3),  # questions without an answer until it is given up
    ("TCP_NODELAY", 1),
)

SOCKET_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _WANTED
        if hasattr(socket, name)
    ),
]

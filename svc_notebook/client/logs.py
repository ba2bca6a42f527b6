"""Keeps the key out of what the HTTP library logs.

At its lowest level that library logs the headers of every answer, and a service, or
something that answers in its place, may send the key back in one. Rules: a line that
holds no key is left as it is; nothing here turns logging on or off.
"""

import logging

from svc_notebook.credentials import Key

_LOGGERS = ("httpcore.connection", "httpcore.http11", "httpcore.proxy", "httpx")


class _Blotter(logging.Filter):
    """Blots out the keys in use."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, Key] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, without keys."""
        said = record.getMessage()
        hidden = said
        for key in tuple(self.keys.values()):
            hidden = key.hide(hidden)
        if hidden != said:
            record.msg, record.args = hidden, ()
        return True


_blotter = _Blotter()


def keep_out_of_logs(key: Key) -> None:
    """See to it that this key shows in no log."""
    mark = key.digest("logs")  # one key is looked for once, however many hold it
    if mark in _blotter.keys:
        return
    _blotter.keys[mark] = key
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_blotter)

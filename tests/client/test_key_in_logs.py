"""Keys and what the HTTP library logs: looked for once a key."""

import logging

from svc_notebook.client.logs import keep_out_of_logs
from svc_notebook.credentials import Key


def test_one_key_held_by_many_clients_is_looked_for_once() -> None:
    """A line of the log costs as much with a thousand clients of one key as with one."""
    (mark, others) = ("sk-held-by-many-clients", 1000)
    for _ in range(others):
        keep_out_of_logs(Key(mark, source="a test"))
    (blotter,) = logging.getLogger("httpcore.http11").filters

    kept = [key for key in blotter.keys.values() if key.is_in(mark)]  # type: ignore[union-attr]  # our own filter

    assert len(kept) == 1

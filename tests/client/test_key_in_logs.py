"""Keys and what the HTTP library logs: looked for once a key."""

import logging

from svc_notebook.client.redact import keep_out_of_logs
from svc_notebook.credentials import Key


def test_one_key_held_by_many_clients_is_looked_for_once() -> None:
    """A logged line costs no more where a thousand clients hold one key."""
    value = "sk-held-by-many-clients"
    for _ in range(1000):
        keep_out_of_logs(Key(value, source="a test"))
    (blotter,) = logging.getLogger("httpcore.http11").filters

    kept = [key for key in blotter.keys.values() if key.is_in(value)]  # type: ignore[union-attr]  # our own filter

    assert len(kept) == 1

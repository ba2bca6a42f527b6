"""A reply on its way: what is sent, how often, and how much."""

from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.display.live import GAP_S
from svc_notebook.panels.worker import ENVELOPE_BYTES, ReplyRenderer

TEXT = "# Head\n\nSome *text* here.\n\n- one\n- two\n\n```py\nx = 1\n```\n\nThe end"


def played(
    growths: ReplyRenderer, pieces: list[tuple[int, str]], gap_s: float
) -> list[str]:
    """Feed pieces at a pace; return what a page shows for each choice."""
    shown: dict[int, tuple[str, str]] = {}
    now_s = 0.0
    for at, (choice, text) in enumerate(pieces):
        growths.feed(choice, text)
        now_s += gap_s
        for message in growths.take(now_s, is_last=at == len(pieces) - 1):
            html, _ = shown.get(message["choice"], ("", ""))
            shown[message["choice"]] = (html + message["html"], message["tail"])
    return ["".join(shown[choice]) for choice in sorted(shown)]


@given(st.lists(st.integers(1, 9), min_size=1), st.sampled_from([0.001, 0.02, 0.3]))
def test_however_it_comes_the_page_shows_the_same(
    sizes: list[int], gap_s: float
) -> None:
    """Blocks and tail together are what the picture holds, at any pace and cut."""
    rest, pieces = TEXT, []
    for size in sizes * 40:
        if rest:
            pieces.append((0, rest[:size]))
            rest = rest[size:]
    growths = ReplyRenderer()

    [shown] = played(growths, [*pieces, (0, rest)], gap_s)

    [drawn] = growths.drawn
    assert shown == drawn["html"] + drawn["tail"]
    assert "<h1>Head</h1>" in shown
    assert "The end" in shown


def test_at_most_twenty_messages_a_second() -> None:
    """However fast pieces come, messages of all choices together are bounded."""
    growths, n_messages, n_steps = ReplyRenderer(), 0, 4000

    for step in range(n_steps):
        growths.feed(step % 3, "word ")
        n_messages += len(growths.take(step / 1000))

    seconds_s = n_steps / 1000
    assert n_messages <= seconds_s / GAP_S + 3


def test_bytes_grow_with_the_reply() -> None:
    """An 18 kB reply costs at most 20 times its bytes, the envelopes counted."""
    line = "Some words that make a line of ordinary text, and a *few* more. "
    reply = "".join(f"{line * 3}\n\n" for _ in range(95))
    pieces = [reply[at : at + 5] for at in range(0, len(reply), 5)]
    growths, n_bytes = ReplyRenderer(), 0

    for step, piece in enumerate(pieces):
        growths.feed(0, piece)
        for message in growths.take(step / 200, is_last=step == len(pieces) - 1):
            n_bytes += ENVELOPE_BYTES + len(message["html"]) + len(message["tail"])

    assert len(reply) > 18_000
    assert n_bytes < 20 * len(reply)


def test_what_stood_there_before_is_drawn_first() -> None:
    """A continuation grows out of the text that it goes on with."""
    growths = ReplyRenderer("one, tw")
    growths.feed(0, "o")

    [message] = growths.take(0.0)

    assert "one, two" in message["tail"]


def test_choices_that_have_not_begun_are_empty() -> None:
    """The picture has a place for each choice up to the last that came."""
    growths = ReplyRenderer()
    growths.feed(2, "third")
    growths.take(0.0)

    assert [bool(each["tail"]) for each in growths.drawn] == [False, False, True]

"""The code blocks of a reply."""

from svc_notebook.display.markdown_rules import Fence, fences


def test_finds_blocks_wherever_they_stand() -> None:
    """Blocks in lists and quotations count, in order; inline code does not."""
    reply = (
        "Use `x`:\n\n```Python title\nprint('ก')\n```\n\n"
        "- then\n\n  ~~~sh\n  ls\n  ~~~\n"
        "\n> ```\n> a\n> ```\n"
    )

    found = fences(reply)

    assert found == (
        Fence(language="python", code="print('ก')\n", is_closed=True),
        Fence(language="sh", code="ls\n", is_closed=True),
        Fence(language="", code="a\n", is_closed=True),
    )


def test_a_block_without_end_says_so() -> None:
    """A reply that was cut inside a block ends in an unclosed one."""
    assert fences("```py\nx = 1") == (
        Fence(language="py", code="x = 1\n", is_closed=False),
    )
    assert fences("```py") == (Fence(language="py", code="", is_closed=False),)


def test_text_alone_has_none() -> None:
    """Without a fence there is no block."""
    assert fences("Nothing `here`.\r\n\r\n    indented\r\n") == ()

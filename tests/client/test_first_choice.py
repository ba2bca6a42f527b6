"""The one text of a stream of several choices."""

import pytest

from svc_notebook.client.async_client import FirstChoice
from svc_notebook.service.chunk import Delta

A, B = Delta(text="a"), Delta(text="b")
X, Y = Delta(index=2, text="x"), Delta(index=1, text="y")


@pytest.mark.parametrize(
    ("deltas", "shown", "rest"),
    [
        ([A, B], ["a", "b"], ""),
        ([X, A, Y, B], ["", "a", "", "b"], ""),
        ([X, Y, X], ["", "", ""], "y"),
        ([Delta(index=1, finish_reason="stop")], [""], ""),
        ([], [], ""),
    ],
)
def test_choice_0_or_else_the_lowest(
    deltas: list[Delta], shown: list[str], rest: str
) -> None:
    """Choice 0 is shown as it comes; without one the lowest is, at the end."""
    front = FirstChoice()

    assert ([front.take(each) for each in deltas], front.text_of_other_choice()) == (
        shown,
        rest,
    )

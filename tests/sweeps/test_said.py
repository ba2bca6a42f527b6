"""What a run says while part of it is there, and of a grid that is another."""

import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.session import Session
from svc_notebook.sweeps.plan import plan

MODEL = "svc-v1.5-instruct"


def test_estimates_of_a_run_that_is_begun_say_what_they_are_of(
    session: Session,
) -> None:
    """Tokens are those of the whole plan, while time is that of what is missing."""
    varied = {"temperature": [0, 1], "max_tokens": 3}
    plan(session, "a", model=MODEL, name="r", varied={**varied, "n": 1}).run()

    larger = plan(
        session, "a", model=MODEL, name="r", repeats=2, varied={**varied, "n": 1}
    )

    assert "(by max_tokens), for all 4 requests" in " ".join(repr(larger).split())
    assert "for all" not in repr(plan(session, "a", varied={"max_tokens": 3}))


def test_numbers_that_differ_are_written_as_people_do(session: Session) -> None:
    """A whole number has no decimal point, however it was given."""
    plan(
        session, "a", model=MODEL, name="r", varied={"max_tokens": 3, "top_p": 1.0}
    ).run()

    with pytest.raises(ParameterError) as caught:
        plan(session, "a", model=MODEL, name="r", varied={"max_tokens": 4, "top_p": 1})

    assert "max_tokens 3." in str(caught.value)
    assert "3.0" not in str(caught.value)
    assert "top_p" not in str(caught.value)

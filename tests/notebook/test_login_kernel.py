"""`%svc login` in a real kernel: the front end is asked for a password."""

from tests.notebook.conftest import TIMEOUT_S, Kernel, Ran

VALUE = "sk-secret-of-the-kernel"


def test_a_key_is_asked_for_as_a_password(kernel: Kernel) -> None:
    """The prompt is one that does not echo; no output holds what was typed."""
    cell = kernel.begin("%svc login")
    request = kernel.client.get_stdin_msg(timeout=TIMEOUT_S)
    kernel.client.input(VALUE)
    ran = kernel.read(cell, Ran())

    assert request["content"]["password"] is True
    assert VALUE not in str(ran.messages)
    assert "a prompt" in kernel.run("%svc use", is_watched=False).shown


def test_nobody_is_asked_where_nobody_watches(kernel: Kernel) -> None:
    """Run by nbclient, a login fails in a few lines that name the ways on."""
    ran = kernel.run("%svc login", is_watched=False)

    assert ran.status == "error"
    assert "SVC_API_KEY" in str(ran.messages)

"""Tool calls: one line each, the rest folded away, nothing that acts."""

from svc_notebook.display.reply import Final
from svc_notebook.display.tool_calls import call_line, step_html, trail_html, trail_text
from svc_notebook.tools.call import ToolRun


def run(**changes: object) -> ToolRun:
    """Return an answered call."""
    fields = {
        "call_id": "c",
        "name": "weather",
        "arguments": '{"city": "Rome"}',
        "result": "rain",
        "seconds_s": 0.25,
        **changes,
    }
    return ToolRun(**fields)  # type: ignore[arg-type]  # its fields


HOSTILE = "<img src=x onerror=alert(1)></pre></details><script>x</script>\x1b[2J$x$"


def test_a_line_says_call_result_and_seconds() -> None:
    """A terminal shows no more than that."""
    lines = trail_text(
        (
            run(),
            run(error="no", result="Error: no", arguments="{}"),
            run(is_approved=False, result="Error: x", error="x", seconds_s=0.0),
            run(result="", is_approved=True),
        )
    )

    assert lines.split("\n") == [
        'weather({"city": "Rome"}) → rain · 0.2\N{NO-BREAK SPACE}s',
        "weather() ✕ Error: no · 0.2\N{NO-BREAK SPACE}s",
        'weather({"city": "Rome"}) ✕ denied · Error: x',
        'weather({"city": "Rome"}) → approved · (an empty text) · 0.2\xa0s',
    ]


def test_long_calls_and_results_are_cut_on_the_line() -> None:
    """The whole is behind it, as far as a reader looks."""
    long = run(arguments='{"a": "' + "x" * 9000 + '"}', result="y" * 9000)

    html = step_html(long)

    assert len(trail_text((long,))) < 160
    assert call_line("f", "x" * 100).endswith("...)")
    assert "[... of 9000 characters]" in html
    assert len(html) < 10_000


def test_what_a_model_or_a_tool_wrote_is_inert() -> None:
    """Names, arguments, results and tracebacks are text, whatever is in them."""
    hostile = run(
        name=HOSTILE, arguments=HOSTILE, result=HOSTILE, error="x", traceback=HOSTILE
    )

    html = trail_html((hostile,))
    plain = trail_text((hostile,))

    assert html.count("</pre>") == 3
    for word in ("<img", "<script", "\x1b", "$x$"):
        assert word not in html
    assert html.count("<details") == html.count("</details>") == 1
    assert "\x1b" not in plain


def test_many_calls_are_behind_one_line() -> None:
    """Seven calls fold away together."""
    assert trail_html(()) == ""
    assert trail_html((run(),) * 6).count("<details") == 6
    assert "7 tool calls" in trail_html((run(),) * 7)
    assert trail_html((run(),) * 7).count("<details") == 8


def test_a_final_form_holds_its_trail() -> None:
    """Above the text in HTML and in plain text."""
    final = Final(texts=("Take a coat.",), footer="m", tool_runs=(run(),))

    bundle = final.bundle()

    assert bundle["text/html"].index("<details") < bundle["text/html"].index("coat")
    assert bundle["text/plain"] == (
        'weather({"city": "Rome"}) → rain · 0.2\N{NO-BREAK SPACE}s\n\nTake a coat.\n\nm'
    )

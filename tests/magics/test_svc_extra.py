"""Fields that the document does not show, in cells and as defaults of the magic."""

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from tests.magics.conftest import Shell


@pytest.mark.slow
def test_a_cell_sends_them(shell: Shell, emulator: Emulator) -> None:
    """`--extra` takes a JSON object; a frame has a column for each field."""
    shell.run("""%%svc -t 0 --extra '{"seed": 1, "guided": {"a": [1]}}'\nHello""")

    body = emulator.requests[-1].json
    assert (body["seed"], body["guided"]) == (1, {"a": [1]})
    df = svc.replies_df()
    assert df["extra_seed"].tolist() == [1]
    assert df["extra_guided"].tolist() == ['{"a":[1]}']
    assert [*df.columns].index("extra_seed") == [*df.columns].index("user") + 1
    assert "extra_seed" in svc.replies_df(texts=False)
    assert svc.usage_df(by="extra_seed", include_emulated=True)["n_requests"].sum() == 1


@pytest.mark.slow
def test_a_default_goes_with_every_cell(shell: Shell, emulator: Emulator) -> None:
    """`%config` sets it, a line replaces it, and an empty object sends none."""
    shell.run("%config SvcMagics.extra = dict(seed=1)")
    shell.run("%svc Hello there")
    shell.run("""%svc --extra '{"top_k": 4}' Hello""")
    shell.run("%svc --extra {} Hello")
    shell.run("""%config SvcMagics.extra = '{"seed": 5}'""")
    dry = shell.run("%svc --dry-run Hello").shown

    sent = [{**each.json} for each in emulator.requests]
    fields = [
        {k: v for k, v in each.items() if k in ("seed", "top_k")} for each in sent
    ]
    assert fields == [{"seed": 1}, {"top_k": 4}, {}]
    assert "seed=5" in dry
    assert "now: {'seed': 5}" in shell.run("%svc help --extra").shown


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("dict(n=2)", "'n', which is a parameter of the service"),
        ("'seed'", "extra must be a JSON object"),
        ("3", "extra must be a mapping"),
        ("dict(seed=set([1]))", "JSON cannot represent"),
        ("""'{"seed": 1, "seed": 2}'""", "has the name 'seed' twice"),
    ],
)
def test_a_default_that_is_refused(
    shell: Shell, caplog: pytest.LogCaptureFixture, value: str, said: str
) -> None:
    """What a request would refuse cannot be set; IPython logs why."""
    shell.run(f"%config SvcMagics.extra = {value}")

    assert said in caplog.text
    assert "sent: max_tokens" in shell.run("%svc --dry-run Hello").shown

"""The panel's line to the kernel: what comes late, twice or never, and what is sent."""

from itertools import pairwise

from playwright.sync_api import CDPSession, Page, expect

from tests.browser.panel_page import RICH, PanelPage, indent_px, live, turn, view


def test_text_ends_a_wait(page: Page) -> None:
    """What the reply waited for is not shown beside its text."""
    panel = PanelPage(page, view())
    panel.begin()
    panel.tell(t="status", text="Waiting for the minute limit")
    status = panel.root.locator(".svc-status")
    expect(status).to_have_text("Waiting for the minute limit")
    panel.tell(t="delta", choice=0, html="", tail="<p>Text</p>")

    expect(status).to_have_text("Replying … Esc stops it")


def test_a_reply_that_came_at_once_leaves_no_draft(page: Page) -> None:
    """Its prompt is in the transcript, and neither pending nor in the composer."""
    panel = PanelPage(page, view([turn(1)]))
    panel.composer.fill("Quick")
    panel.composer.press("Enter")
    panel.show(turns=[turn(1), turn(2, prompt="Quick")])
    panel.tell(t="heard", kind="send")

    expect(panel.turns).to_have_count(2)
    expect(panel.composer).to_have_value("")


def test_a_message_waits_for_the_reply_to_a_cell(page: Page) -> None:
    """A kernel without subshells hears it when the cell has ended."""
    panel = PanelPage(page, view([turn(1)]))
    panel.composer.fill("Mine")
    panel.composer.press("Enter")
    asked = live("Growing", prompt="The cell's", asker="a cell")
    panel.show(state="busy", can=["stop"], live=asked)
    expect(panel.turns.last).to_contain_text("The cell's")
    panel.tell(t="ended", text="Reply ended")
    both = [turn(1), turn(2, prompt="The cell's")]
    panel.show(state="idle", can=["send"], live=None, turns=both)
    expect(panel.turns).to_have_count(3)
    expect(panel.turns.last.locator(".svc-prompt")).to_have_text("Mine")
    panel.show(turns=[*both, turn(3, prompt="Mine")])
    panel.tell(t="heard", kind="send")

    expect(panel.turns).to_have_count(3)
    expect(panel.composer).to_have_value("")


def test_a_message_that_came_after_the_cell_began_is_a_draft_again(page: Page) -> None:
    """It was refused; the prompt of a cell that fails is the cell's."""
    panel = PanelPage(page, view([turn(1)]))
    panel.composer.fill("Mine")
    panel.composer.press("Enter")
    panel.show(
        state="busy", can=["stop"], live=live(prompt="The cell's", asker="a cell")
    )
    panel.tell(t="heard", kind="send")
    expect(panel.composer).to_have_value("Mine")
    panel.tell(t="ended", text="Reply ended")
    panel.show(state="idle", can=["send"], live=None)

    expect(panel.turns).to_have_count(1)
    expect(panel.composer).to_have_value("Mine")


def test_what_was_sent_to_a_kernel_that_is_gone_comes_back(page: Page) -> None:
    """The prompt is a draft again, the reader is told, and nothing can be decided."""
    question = {"id": "q", "name": "pay", "about": "Pays.", "arguments": "{}"}
    panel = PanelPage(page, view([turn(1)], can=["send", "decide"], ask=question))
    panel.composer.fill("precious")
    page.evaluate("() => { window.isGone = true }")
    panel.composer.press("Enter")

    expect(panel.composer).to_have_value("precious")
    expect(panel.said).to_have_text(
        "The kernel was restarted or shut down; run the cell again."
    )
    assert indent_px(panel.root.locator(".svc-notice")) < 20
    expect(panel.root.locator(".svc-card")).to_be_hidden()
    expect(panel.button("Ask again", panel.turns.first)).to_be_disabled()
    panel.root.get_by_text("Settings").click()
    expect(panel.root.get_by_label("temperature")).to_be_disabled()


def test_a_reply_whose_kernel_is_gone_waits_for_nothing(page: Page) -> None:
    """No dots move, and a call that waited is not answered."""
    sunny, waits = "weather() → sunny", "pay(baht=5) → waits for your answer"
    unanswered = "pay(baht=5) → not answered"
    call = {"name": "pay", "html": "", "is_error": False}
    answered = call | {"line": sunny, "unanswered": ""}
    waiting = call | {"line": waits, "unanswered": unanswered}
    panel = PanelPage(page, view([turn(1)]))
    panel.begin(tool_runs=[answered, waiting])
    reply = panel.turns.last
    expect(reply.locator(".svc-call")).to_have_text([sunny, waits])
    expect(reply.locator(".svc-dots").last).to_be_visible()
    page.evaluate("() => { window.isGone = true }")
    panel.composer.fill("precious")  # a draft is measured

    expect(reply.locator(".svc-call")).to_have_text([sunny, unanswered])
    expect(reply.locator(".svc-dots:visible")).to_have_count(0)


def test_compared_replies_whose_kernel_is_gone_wait_for_nothing(page: Page) -> None:
    """Neither dots nor a status are left in their columns."""
    column = {"label": "a", "status": "Waiting …", "until_ms": None}
    panel = PanelPage(page, view([turn(1)]))
    panel.begin("", "", columns=[column, column | {"label": "b"}])
    expect(panel.turns.last.get_by_text("Waiting")).to_have_count(2)
    expect(panel.turns.last.locator(".svc-dots:visible")).to_have_count(2)
    page.evaluate("() => { window.isGone = true }")
    panel.composer.fill("precious")

    expect(panel.turns.last.get_by_text("Waiting")).to_have_count(0)
    expect(panel.turns.last.locator(".svc-dots:visible")).to_have_count(0)


def test_nothing_is_sent_that_cannot_be_answered(page: Page) -> None:
    """Blanks, a prompt during a reply, and buttons that are greyed out."""
    panel = PanelPage(page, view([turn(1)]))
    panel.composer.fill(" \n ")
    panel.composer.press("Enter")
    panel.begin()
    panel.composer.fill("too early")
    panel.composer.press("Enter")
    panel.button("Undo the last change").click(force=True)

    assert panel.sent == []
    expect(panel.composer).to_have_value("too early")


def test_consent_is_asked_for_aloud_and_can_be_for_always(page: Page) -> None:
    """The question is read out; arguments that were not edited are not sent back."""
    question = {"id": "q", "name": "pay", "about": "Pays.", "arguments": '{"a": 1}'}
    panel = PanelPage(page, view(state="asking", can=["stop", "decide"]))
    panel.show(ask=question)
    expect(panel.said).to_have_text("pay asks for your approval.")
    panel.button("Always approve").click()

    decided = {"t": "decide", "id": "q", "verdict": "always", "arguments": None}
    assert panel.sent == [decided]


def test_nothing_moves_under_a_selection(page: Page) -> None:
    """Text that grows does not scroll while the user selects something."""
    panel = PanelPage(page, view())
    panel.begin("\n\n".join(f"Paragraph {n}." for n in range(60)))
    top = "(log) => log.scrollTop"
    before = panel.log.evaluate(top)
    block = panel.turns.locator("p").last.element_handle()
    page.evaluate("(block) => getSelection().selectAllChildren(block)", block)
    panel.tell(t="delta", choice=0, html=f"<p>{'more ' * 400}</p>", tail="")

    assert panel.log.evaluate(top) == before > 0


def test_turns_that_do_not_come_again_stay(page: Page) -> None:
    """A view brings what changed; the rest is drawn, and saved with the state."""
    panel = PanelPage(page, view([turn(1), turn(2)]))

    panel.show(nth=1, n_turns=3, turns=[turn(3)])
    panel.show(nth=2, n_turns=3, turns=[turn(1, "Better.")])
    expect(panel.turns).to_have_count(3)
    expect(panel.turns.first).to_contain_text("Better.")
    saved = page.evaluate("() => saved().view.turns.map((turn) => turn.id)")
    panel.show(nth=3, n_turns=2)

    expect(panel.turns).to_have_count(2)
    assert saved == ["turn-1", "turn-2", "turn-3"]
    assert panel.n_greetings == 1


def test_older_turns_come_above_what_is_read(page: Page) -> None:
    """Scrolled up or by the button; what was in sight stays in its place."""
    newest = [turn(n) for n in range(101, 131)]
    panel = PanelPage(page, view(newest, n_older=100))
    more = panel.button("Show older turns (100)")
    first = panel.turns.first
    panel.log.hover()
    page.mouse.wheel(0, -100_000)
    page.wait_for_function("() => sent.some(({ t }) => t === 'older')")
    page.mouse.wheel(0, -100)
    expect(more).to_be_in_viewport()
    before = first.bounding_box()
    n_turns = 130
    every = [turn(n) for n in range(1, 131)]
    panel.show(turns=every, n_turns=n_turns, n_older=0, is_whole=True)

    expect(panel.turns).to_have_count(n_turns)
    expect(more).to_be_hidden()
    after = panel.turns.nth(100).bounding_box()
    assert before
    assert after
    assert abs(before["y"] - after["y"]) < 60  # the button has gone
    assert panel.sent == [{"t": "older"}]


def test_restored_turns_can_be_removed(page: Page) -> None:
    """The notice that says where they are from has the button."""
    notice = "1 turn of plan restored from the ledger."
    panel = PanelPage(page, view([turn(1)], notice=notice, is_restored=True))
    panel.button("Start empty").click()

    assert panel.sent == [{"t": "clear"}]


def test_restored_turns_cannot_be_removed_after_a_change(page: Page) -> None:
    """The notice stays, without the button that would remove the new turn as well."""
    notice = "1 turn of plan restored from the ledger."
    panel = PanelPage(page, view([turn(1)], notice=notice, is_restored=True))
    expect(panel.button("Start empty")).to_be_visible()

    panel.show(turns=[turn(1), turn(2)], is_restored=False)

    expect(panel.button("Start empty")).to_have_count(0)
    expect(page.get_by_text(notice)).to_be_visible()


def test_what_the_cell_sets_can_be_used(page: Page) -> None:
    """The notice that says what is used instead has the button."""
    cells = {"system": "Be kind", "temperature": 0.9}
    notice = "Kept from the last turn: system prompt, temperature."
    panel = PanelPage(page, view([turn(1)], notice=notice, cells=cells))
    panel.button("Use the cell's").click()

    assert panel.sent == [
        {"t": "set", "name": "system", "value": "Be kind"},
        {"t": "set", "name": "temperature", "value": 0.9},
    ]


def test_code_in_a_notice_looks_like_code(page: Page) -> None:
    """Between backticks, and as text: nothing of it is markup."""
    notice = "See `%svc restore <b>x</b>`, or ` alone."
    panel = PanelPage(page, view([turn(1)], notice=notice))
    shown = panel.root.locator(".svc-notice")

    expect(shown.locator("code")).to_have_text("%svc restore <b>x</b>")
    expect(shown).to_have_text("See %svc restore <b>x</b>, or ` alone.")


def test_a_system_prompt_can_be_pointed_at(page: Page) -> None:
    """In the header, and below a reply that another one was asked with."""
    settings = {"model": "m", "system": "Be kind", "temperature": None}
    asked = turn(1, system="Be brief", footer="12 tokens · system prompt “Be brief”")
    panel = PanelPage(page, view([asked], settings=settings))
    words = panel.turns.first.locator(".svc-foot > .svc-words")

    expect(panel.root.locator(".svc-chip")).to_have_attribute("title", "Be kind")
    expect(words).to_have_attribute("title", "Be brief")


def test_a_view_that_was_lost_is_asked_for(page: Page) -> None:
    """A gap in their numbers, or a turn that never came, has the panel say hello."""
    panel = PanelPage(page, view([turn(1)]))
    panel.show(nth=1, notice="One")
    before = panel.n_greetings

    panel.show(nth=3, notice="Three")
    after_gap = panel.n_greetings
    panel.show(nth=4, n_turns=2)
    after_missing = panel.n_greetings
    panel.show(nth=9, is_whole=True, turns=[turn(1), turn(2)])

    assert (before, after_gap, after_missing) == (1, 2, 3)
    assert panel.n_greetings == 3
    expect(panel.turns).to_have_count(2)


def worked_s(cdp: CDPSession) -> float:
    """Return the CPU time that a page has taken."""
    metrics = cdp.send("Performance.getMetrics")["metrics"]
    found: float = next(x["value"] for x in metrics if x["name"] == "TaskDuration")
    return found


def test_a_long_transcript_is_quick(page: Page) -> None:
    """Of 200 turns a change draws the changed one alone, in well under 0.1 s of CPU."""
    turns = [turn(n, RICH) for n in range(1, 201)]
    panel = PanelPage(page, view(turns))
    page.evaluate(
        """() => { window.n_drawn = 0; new MutationObserver(
            (changes) => { window.n_drawn += changes.length }
        ).observe(document.querySelector(".svc-log"),
            { childList: true, subtree: true }) }"""
    )
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    at_s = [worked_s(cdp)]
    for n in range(201, 206):
        turns.append(turn(n))
        page.evaluate("(turns) => { show({ turns }) }", turns)
        at_s.append(worked_s(cdp))
    cdp.detach()

    assert page.evaluate("() => n_drawn") < 5 * 20
    assert min(after - before for before, after in pairwise(at_s)) < 0.1
    expect(panel.turns).to_have_count(205)


def test_messages_and_views_are_taken_in_order(page: Page) -> None:
    """What overtakes waits, what a view has already is left out, gaps are asked."""
    page.clock.install()
    panel = PanelPage(page, view(seq=4))
    panel.tell(t="delta", seq=6, choice=0, html="<p>Two.</p>", tail="")
    panel.show(state="busy", can=["stop"], live=live("One."), seq=5)
    panel.tell(t="delta", seq=4, choice=0, html="<p>Old.</p>", tail="")
    expect(panel.turns.locator("p")).to_have_text(["One.", "Two."])

    n_greetings = panel.n_greetings
    panel.tell(t="delta", seq=9, choice=0, html="<p>Four.</p>", tail="")
    page.clock.run_for(1000)
    assert panel.n_greetings == n_greetings + 1
    panel.show(live=live("One.\n\nTwo.\n\nThree."), seq=8)
    expect(panel.turns.locator("p")).to_have_text(["One.", "Two.", "Three.", "Four."])


def test_a_missing_message_is_asked_for_while_others_arrive(page: Page) -> None:
    """A reply that goes on streaming does not put the question off."""
    page.clock.install()
    panel = PanelPage(page, view(seq=4, state="busy", live=live("One.")))
    n_greetings = panel.n_greetings
    for seq in range(6, 12):
        panel.tell(t="delta", seq=seq, choice=0, html="<p>More.</p>", tail="")
        page.clock.run_for(150)

    assert panel.n_greetings == n_greetings + 1


def test_what_was_missed_is_asked_for(page: Page) -> None:
    """Back from sleep or from where there was no network, the panel says hello."""
    panel = PanelPage(page, view())
    page.evaluate("() => window.dispatchEvent(new Event('online'))")
    assert panel.n_greetings == 2

    page.evaluate("() => close_view()")
    page.evaluate("() => window.dispatchEvent(new Event('online'))")
    assert panel.n_greetings == 2


def test_tab_skips_the_folded_transcript_while_the_panel_lives(page: Page) -> None:
    """Hosts that cannot hide it fold it; after a restart, Tab reaches it again."""
    panel = PanelPage(page, view([turn(1)]))
    page.evaluate(
        """() => { const box = document.createElement("details");
            box.className = "svc-static svc-panel-1";
            box.innerHTML = "<summary>Transcript: plan</summary><p>Question 1";
            document.body.append(box) }"""
    )
    title = page.get_by_text("Transcript: plan")
    expect(title).to_have_attribute("tabindex", "-1")
    settings = panel.root.get_by_text("Settings", exact=True)
    settings.focus()
    page.keyboard.press("Tab")
    expect(title).not_to_be_focused()

    page.evaluate("() => { restart(); window.dispatchEvent(new Event('online')) }")
    expect(title).to_have_attribute("tabindex", "0")
    settings.focus()
    page.keyboard.press("Tab")
    expect(title).to_be_focused()


def test_a_panel_that_nothing_answers_leaves_the_place_to_the_transcript(
    page: Page,
) -> None:
    """It may be saved widget state, older than the static transcript beside it."""
    page.clock.install()
    panel = PanelPage(page, view([turn(1)]))
    page.evaluate(
        """() => { const area = document.getElementById("at");
            area.className = "jp-OutputArea";
            const child = document.createElement("div");
            child.className = "jp-OutputArea-child";
            child.append(document.createElement("p"));
            child.firstChild.className = "svc-static";
            child.firstChild.append("Newer");
            area.append(child) }"""
    )
    static = page.locator(".svc-static")
    expect(static).to_be_hidden()
    panel.root.evaluate("(root) => root.classList.add('svc-unanswered')")

    expect(static).to_be_visible()
    expect(panel.log).to_be_hidden()

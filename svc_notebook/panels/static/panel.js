/* One view of a panel: its header, transcript, composer, notices and consent card.
 *
 * The kernel decides which actions are allowed and renders Markdown to safe HTML. Only what
 * has changed is drawn again. A new button is a row in panels/actions.py, and in the script
 * that draws it a row in `TOP` (here), or `ACTIONS` or `MENU` (turn.js), its icon and its type.
 */

/**
 * What the buttons and keys say; `t` is the name of a row in panels/actions.py.
 * @typedef {{t: "stop"}} StopAction
 * @typedef {{t: "decide", id: string, verdict: string, arguments: ?string}} DecideAction
 * @typedef {{t: "dismiss"}} DismissAction removes the notice
 * @typedef {{t: "undo"}} UndoAction
 * @typedef {{t: "redo"}} RedoAction
 * @typedef {{t: "clear"}} ClearAction
 */

Object.assign(ICONS, {
  send: "M8 13V3M3.5 7.5 8 3l4.5 4.5",
  stop: "M4.5 4.5h7v7h-7z",
  down: "M8 3v10M3.5 8.5 8 13l4.5-4.5",
  undo: "M6 3 3 6l3 3M3 6h6.5a3.5 3.5 0 0 1 0 7H6",
  redo: "M10 3l3 3-3 3M13 6H6.5a3.5 3.5 0 0 0 0 7H10",
  clear: "M6 13.2h7.5M2.8 9.4l5.8-5.8 4.2 4.2-5.4 5.4H6zM5.6 6.6l4.2 4.2",
});
const TOP = [
  ["undo", "Undo the last change"],
  ["redo", "Redo what was undone"],
  ["clear", "Clear the conversation"],
];
const NEAR_END_PX = 16;
const WAIT = "Your draft is kept: wait for the reply, or stop it first.";
const EXAMPLES = [
  "Explain temperature, the parameter, in two sentences.",
  "Write pandas code that counts the missing values of each column.",
  "Suggest three titles for a chart of rain by month.",
];
const QUIET_KEYS = "data-lm-suppress-shortcuts";

class Panel {
  constructor(line, host) {
    this.line = line;
    // each widget has a copy of this script, so that a counter would not be unique
    this.id = `svc-${Math.random().toString(36).slice(2)}`;
    this.turns = new Map();
    this.seen = {};
    this.isAtEnd = true;
    this.untypeset = [];
    this.attaches = new Set();
    this.root = make("section", { class: "svc-panel", [QUIET_KEYS]: "true" });
    this.conversations = new Conversations(this);
    this.makeTop();
    this.makeLog();
    this.makeComposer();
    this.settings = new Settings(this);
    this.compare = new Compare(this);
    this.model.after(this.compare.button);
    this.card = make("div", { class: "svc-card", role: "group", hidden: "" });
    this.notices = make("div", { class: "svc-notices" });
    this.spoken = make("div", { class: "svc-unseen", role: "status", "aria-live": "polite" });
    // the notebook's shortcuts look at a button before its parents
    this.root.addEventListener("focusin", ({ target }) => target.setAttribute(QUIET_KEYS, "true"));
    this.menu = new Menu(this);
    const parts = [this.top, this.chips, this.compare.element, this.conversations.element];
    parts.push(this.middle, this.card, this.notices, this.form);
    const below = make("div", { class: "svc-below" }, this.under, this.settings.element);
    this.root.append(make("div", { class: "svc-body" }, ...parts), below, this.spoken);
    this.root.append(this.menu.element);
    this.root.addEventListener("keydown", (event) => this.key(event));
    host.append(this.root);
    this.sizes = new ResizeObserver(() => this.settle());
    this.sizes.observe(this.log);
    this.clock = setInterval(() => this.drawStatus(), 500);
    this.gone = new AbortController();
    const { signal } = this.gone;
    const ask = () => document.hidden || line.ask();
    window.addEventListener("online", ask, { signal });
    window.addEventListener("scroll", () => this.scrolledAround(), { signal, capture: true });
    document.addEventListener("visibilitychange", ask, { signal });
    line.join(this);
    this.draw();
  }

  remove() {
    this.line.leave(this);
    this.sizes.disconnect();
    this.gone.abort();
    clearInterval(this.clock);
    this.root.remove();
  }

  makeTop() {
    this.label = make("strong", { class: "svc-label" });
    this.model = make("span", { class: "svc-model" });
    this.chips = make("div", { class: "svc-chips", role: "group", "aria-label": "Changed settings" });
    this.level = make("span", { class: "svc-level" });
    const is = { role: "meter", "aria-label": "Tokens", "aria-valuemin": 0 };
    this.meter = make("span", { class: "svc-meter", ...is }, this.level);
    this.budget = make("span", { class: "svc-budget" });
    this.buttons = TOP.map(([t, label]) => iconButton(t, label, () => this.line.send({ t })));
    this.top = make("div", { class: "svc-top" }, this.conversations.button, this.label);
    this.top.append(this.model, this.meter, this.budget, ...this.buttons);
  }

  makeLog() {
    const is = { role: "log", "aria-live": "off", "aria-label": "Transcript", tabindex: 0 };
    this.log = make("div", { class: "svc-log", ...is });
    this.empty = make("div", { class: "svc-empty" });
    this.log.append(this.empty);
    this.log.addEventListener("scroll", () => this.scrolled());
    this.jump = iconButton("down", "Jump to the latest", () => this.toEnd());
    this.jump.hidden = true;
    this.middle = make("div", { class: "svc-middle" }, this.log, this.jump);
  }

  makeComposer() {
    this.composer = make("textarea", { rows: 1, "aria-label": "Message", dir: "auto" });
    this.composer.addEventListener("keydown", (event) => this.composerKey(event));
    this.composer.addEventListener("input", () => this.typed());
    this.sendButton = iconButton("send", "Send", () => this.submit());
    this.stopButton = iconButton("stop", "Stop", () => this.stop());
    this.status = make("span", { class: "svc-status" });
    this.hint = make("span", { class: "svc-hint" });
    const box = make("div", { class: "svc-composer" }, this.composer);
    box.append(this.sendButton, this.stopButton);
    this.under = make("div", { class: "svc-under" }, this.status, this.hint);
    this.attach = new Attach(this, this.composer, this.line, () => this.line.draw());
    this.form = make("div", { class: "svc-form" }, box, this.attach.element);
  }

  /* -- input -- */

  key(event) {
    if (isInput(event) || event.defaultPrevented) return;
    if (event.key === "Escape" && this.can("stop")) this.stop();
    const step = undoStep(event);
    if (!event.target.matches("textarea, input, select")) {
      if (!step) return;
      event.preventDefault();
      if (this.can(step)) this.line.send({ t: step });
    }
    if (event.target.localName !== "textarea") return;
    if (event.key === "Enter") breakLine(event);
    if (step && document.execCommand(step)) event.preventDefault();
    else if (step === "redo" && !event.target.value && this.can(step)) this.line.send({ t: step });
  }

  composerKey(event) {
    if (isInput(event) || this.attach.key(event)) return;
    const isPlain = !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey;
    if (this.isSendKey(event)) {
      event.preventDefault();
      this.submit();
    } else if (event.key === "ArrowUp" && isPlain && !this.composer.value) {
      event.preventDefault();
      this.editLast();
    }
  }

  isSendKey(event) {
    if (event.key !== "Enter" || event.altKey) return false;
    if (event.ctrlKey || event.metaKey) return true;
    return event.shiftKey !== (this.line.view.send_on_enter ?? true);
  }

  typed() {
    this.line.draft = this.composer.value;
    this.line.store();
    fit(this.composer);
    for (const view of this.line.views) if (view !== this) view.drawDraft();
    this.drawButtons();
  }

  submit() {
    if (!this.composer.value.trim()) return;
    if (this.can("stop")) {
      this.line.status = { text: WAIT };
      this.say(WAIT);
      this.drawStatus();
    }
    if (!isAllowed(this.sendButton)) return;
    this.isAtEnd = true;
    this.composer.focus({ preventScroll: true });
    this.line.sendPrompt(this.composer.value);
  }

  stop() {
    this.composer.focus({ preventScroll: true });
    this.line.send({ t: "stop" });
  }

  editLast() {
    const turns = this.line.view.turns ?? [];
    const last = turns.findLast((turn) => turn.can?.includes("edit"));
    if (last && this.isIdle) this.turns.get(last.id)?.edit();
  }

  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.log;
    this.isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    this.jump.hidden = this.isAtEnd;
  }

  scrolledAround() {
    this.menu.close();
    for (const each of this.attaches) each.place();
  }

  toEnd() {
    this.isAtEnd = true;
    this.log.focus({ preventScroll: true });
    this.settle();
  }

  /** Return whether the empty composer has the focus. */
  isWaiting() {
    return document.activeElement === this.composer && !this.composer.value;
  }

  /* -- drawing -- */

  get isIdle() {
    return this.line.view.state === "idle" && !this.line.isDead;
  }

  can(name) {
    return !this.line.isDead && Boolean(this.line.view.can?.includes(name));
  }

  /** Draw what has changed; the focus and the scroll position stay. */
  draw() {
    const hadFocus = this.root.contains(document.activeElement);
    this.root.classList.toggle("svc-dead", this.line.isDead);
    this.root.classList.toggle("svc-unanswered", this.line.isUnanswered);
    this.stretch();
    this.drawTop();
    this.drawTurns();
    this.drawCard();
    this.drawNotices();
    this.drawDraft();
    this.drawButtons();
    this.drawStatus();
    this.settings.draw(this.line.view, !this.line.isDead);
    this.compare.draw(this.line.view, !this.line.isDead);
    this.settle();
    const focused = document.activeElement;
    const isLost = !this.root.contains(focused) || focused.closest("[hidden]");
    if (hadFocus && isLost) this.composer.focus({ preventScroll: true });
  }

  /** Give the panel its height when a reply starts, so that nothing moves while it grows. */
  stretch() {
    if (this.isTall || !(this.line.live || this.line.pending)) return;
    this.isTall = true;
    this.root.classList.add("svc-tall");
    if (this.root.contains(document.activeElement)) this.form.scrollIntoView({ block: "nearest" });
  }

  drawTop() {
    const { label, name, meter } = this.line.view;
    const title = label || `Conversation ${name ?? ""}`;
    this.root.setAttribute("aria-label", title);
    setText(this.label, title);
    this.label.title = title;
    this.meter.hidden = this.budget.hidden = !meter;
    if (meter) {
      const part = Math.min(1, meter.used_tokens / Math.max(1, meter.budget_tokens));
      this.level.style.width = `${100 * part}%`;
      this.meter.classList.toggle("svc-full", part > 0.85);
      this.meter.setAttribute("aria-valuenow", meter.used_tokens);
      this.meter.setAttribute("aria-valuemax", meter.budget_tokens);
      this.meter.setAttribute("aria-valuetext", meter.text);
      setText(this.budget, `~${short(meter.used_tokens)} of ${short(meter.budget_tokens)}`);
      this.budget.title = this.meter.title = meter.text;
    }
    TOP.forEach(([name], at) => allow(this.buttons[at], this.can(name)));
    this.conversations.draw(this.line.view);
  }

  drawTurns() {
    const { turns = [] } = this.line.view;
    const { live, pending } = this.line;
    this.adoptNew(turns);
    const shown = turns.map((turn) => [turn, live?.turn === turn.id ? live : null]);
    const isNewTurn = live ? live.turn === "new" || !shown.some((pair) => pair[1]) : pending;
    const prompt = live?.prompt ?? pending?.text;
    const attached = [];
    const { model } = this.line.view.settings ?? {};
    if (isNewTurn) shown.push([{ id: "new", prompt, attached, model, choices: [] }, live]);
    const ids = new Set(shown.map(([turn]) => turn.id));
    for (const [id, turn] of this.turns) if (!ids.has(id)) this.drop(id, turn);
    this.empty.hidden = shown.length > 0;
    if (!shown.length) this.drawEmpty();
    let at = this.empty;
    for (const [turn, itsLive] of shown) {
      if (!this.turns.has(turn.id)) this.turns.set(turn.id, new Turn(this, turn.id));
      const drawn = this.turns.get(turn.id);
      if (at.nextElementSibling !== drawn.element) at.after(drawn.element);
      at = drawn.element;
      drawn.draw(turn, itsLive, this.isIdle);
    }
  }

  /** Say what can be done in an empty panel. */
  drawEmpty() {
    const { name, settings = {}, send_on_enter: isOn = true } = this.line.view;
    const { model, system } = settings;
    if (!isNew(this.seen, "empty", [name, model, system, isOn])) return;
    const enter = isOn ? ["Enter", "Shift+Enter"] : ["Shift+Enter", "Enter"];
    const rows = {
      Model: model ?? "",
      "System prompt": system || "none so far",
      Keys: `${enter[0]} sends, ${enter[1]} breaks the line, Esc stops, ↑ edits the last prompt, @ attaches a value`,
      "In a cell": make("span", {}, make("code", {}, `%%svc -c ${name}`), " shares this conversation"),
    };
    const list = make("dl");
    for (const [title, text] of Object.entries(rows)) {
      list.append(make("dt", {}, title), make("dd", { dir: "auto" }, text));
    }
    const fill = (text) => () => {
      this.composer.value = text;
      this.typed();
      this.composer.focus();
    };
    const row = make("div", { class: "svc-row", role: "group", "aria-label": "Examples" });
    row.append(...EXAMPLES.map((text) => textButton(text, fill(text))));
    this.empty.replaceChildren(list, row);
  }

  /** Keep the elements of the live turn for the finished turn. */
  adoptNew(turns) {
    const added = turns.at(-1);
    const under = this.turns.get("new");
    if (!under || this.line.pending || !added || this.turns.has(added.id)) return;
    if (this.line.live?.turn === "new") return;
    this.turns.delete("new");
    under.id = added.id;
    this.turns.set(added.id, under);
  }

  drop(id, turn) {
    const edited = turn.form && turn.area.value;
    if (edited && edited !== turn.turn.prompt) this.line.keep(edited, turn.chips); // the user's
    turn.attach?.remove();
    turn.element.remove();
    this.turns.delete(id);
  }

  grow(at, html, tail) {
    const turn = this.turns.get(this.line.live.turn) ?? this.turns.get("new");
    if (!turn?.grow(at, html, tail)) this.drawTurns();
    this.drawStatus();
    this.settle();
  }

  drawCard() {
    const { ask } = this.line.view;
    this.card.hidden = !ask || this.line.isDead;
    if (!isNew(this.seen, "ask", ask ?? null)) return;
    if (!ask) return this.card.replaceChildren();
    const area = make("textarea", { rows: 1, spellcheck: "false", "aria-label": "Arguments" });
    area.value = ask.arguments ?? "";
    area.addEventListener("input", () => fit(area));
    const decide = (verdict) => {
      const edited = area.value === (ask.arguments ?? "") ? null : area.value;
      this.line.send({ t: "decide", id: ask.id, verdict, arguments: edited });
    };
    const json = make("details", {}, make("summary", {}, "Edit the arguments"), area);
    json.addEventListener("toggle", () => fit(area));
    const row = make("div", { class: "svc-row" });
    row.append(textButton("Approve", () => decide("approve"), "svc-main"));
    row.append(textButton("Always approve", () => decide("always")));
    row.append(textButton("Deny", () => decide("deny")));
    const title = make("strong", { id: `${this.id}-ask` }, `The model wants to call ${ask.name}`);
    this.card.setAttribute("aria-labelledby", title.id);
    const always =
      "Always: this function runs without a question, with any arguments, until it is " +
      `defined again or the kernel restarts; %svc tools ask ${ask.name} takes it back.`;
    const meaning = make("small", {}, always);
    const about = make("p", {}, ask.about ?? "");
    this.card.replaceChildren(title, about, argumentTable(ask.arguments), json, row, meaning);
  }

  drawNotices() {
    const { isDead, problems, view } = this.line;
    const notice = this.settings.isSaying(view) ? "" : view.notice;
    const kind = view.is_problem ? "svc-notice svc-failed" : "svc-notice";
    if (!isNew(this.seen, "notices", [isDead, notice, kind, problems])) return;
    const dismissable = (kind, text, act) =>
      make("div", { class: kind }, make("span", {}, text), iconButton("close", "Dismiss", act));
    const dismiss = () => this.line.send({ t: "dismiss" });
    const lines = [notice && dismissable(kind, notice, dismiss)];
    problems.forEach((text, at) => {
      if (text === view.notice) return;
      const drop = () => {
        problems.splice(at, 1);
        this.line.draw();
      };
      lines.push(dismissable("svc-notice svc-failed", text, drop));
    });
    if (isDead) lines.push(make("div", { class: "svc-notice svc-failed" }, RESTARTED));
    this.notices.replaceChildren(...lines.filter(Boolean));
  }

  drawDraft() {
    this.attach.draw();
    if (this.composer.value === this.line.draft) return;
    this.composer.value = this.line.draft;
    fit(this.composer);
  }

  drawButtons() {
    const { isDead, pending, view } = this.line;
    const isOn = view.send_on_enter ?? true;
    const isBusy = this.can("stop");
    this.sendButton.hidden = isBusy;
    this.stopButton.hidden = !isBusy;
    allow(this.sendButton, this.can("send") && !pending && Boolean(this.composer.value.trim()));
    const { by, values } = view.compare ?? {};
    const send = by ? `Ask ${values.length} times` : "Send";
    named(this.sendButton, `${send} (${isOn ? "Enter" : "Shift+Enter"})`);
    named(this.stopButton, "Stop (Esc)");
    this.composer.disabled = isDead;
    this.composer.placeholder = isDead ? "" : "Message";
  }

  drawStatus() {
    const { status, live, view, hint, pending } = this.line;
    let text = status?.text || live?.status || (pending ? "Sending …" : "");
    if (view.state === "asking") text = "Waiting for your answer";
    if (!text && live && !live.isEnded) text = "Replying …";
    if (!text && view.state === "waiting") text = "Waiting …";
    const left_s = status?.until_ms ? Math.ceil((status.until_ms - Date.now()) / 1000) : 0;
    if (left_s > 0) text += ` (${left_s} s)`;
    setText(this.status, this.line.isDead ? "" : text);
    setText(this.hint, hint);
    for (const [at, column] of (live?.columns ?? []).entries()) {
      const turn = this.turns.get(live.turn) ?? this.turns.get("new");
      if (turn?.choices[at]) drawWait(turn.choices[at], column);
    }
  }

  say(text) {
    setText(this.spoken, text);
  }

  /** Scroll to the end if the user was there and selects nothing; else offer to jump. */
  settle() {
    if (this.log.isConnected && this.log.clientHeight) this.typeset([]);
    const chosen = getSelection();
    const isSelecting = !chosen.isCollapsed && this.log.contains(chosen.anchorNode);
    if (this.isAtEnd && !isSelecting) this.log.scrollTop = this.log.scrollHeight;
    this.scrolled();
  }

  /** Let the host typeset math in finished blocks, if it can. */
  typeset(blocks) {
    this.untypeset.push(...blocks.filter((block) => /\$|\\[([]/.test(block.textContent)));
    if (!this.log.isConnected) return;
    const typesetter = this.line.model.widget_manager?.rendermime?.latexTypesetter;
    for (const block of this.untypeset.splice(0)) {
      try {
        typesetter?.typeset(block);
      } catch {
        // the source is readable too
      }
    }
  }
}

/** Write a number of tokens briefly: 512, 8.2k. */
function short(n) {
  return n < 1000 ? `${n}` : `${(n / 1000).toFixed(1)}k`;
}

/** Show the arguments of a call, one row each. */
function argumentTable(text) {
  const table = make("table", { "aria-label": "Arguments of the call" });
  for (const [name, value] of Object.entries(JSON.parse(text || "{}"))) {
    const shown = typeof value === "string" ? value : JSON.stringify(value);
    table.append(make("tr", {}, make("th", { scope: "row" }, name), make("td", { dir: "auto" }, shown)));
  }
  table.hidden = !table.childElementCount;
  return table;
}

export default () => {
  let line = null;
  return {
    initialize({ model }) {
      line = new Line(model);
    },
    render({ model, el }) {
      line ??= new Line(model);
      const panel = new Panel(line, el);
      return () => panel.remove();
    },
  };
};

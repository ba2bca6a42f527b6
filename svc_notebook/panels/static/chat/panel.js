/* One view of a panel: its header, transcript and notices, the key that stops, and its
 * parts from other scripts.
 *
 * The kernel decides which actions are allowed and renders Markdown to safe HTML. Only changed
 * parts are drawn again.
 */

const NEAR_END_PX = 16;
const SCROLLING_MS = 1000; // how long a scroll may go on after a wheel, a key or a touch
const BACK_KEY = "Escape"; // to the message; while there is something to stop, it stops that
const BRIEF_MS = 6000;

/** Return the cell that has a panel; for one that is docked, the notebook's active cell. */
function cellOf(root) {
  const active = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-mod-active";
  return root.closest(".jp-Cell") ?? document.querySelector(active);
}

class Panel {
  constructor(connection, host) {
    this.connection = connection;
    this.id = newId();
    this.turns = new Map();
    this.isAtEnd = true;
    this.untypeset = [];
    this.attaches = new Set();
    this.gone = new AbortController();
    this.movedAt_ms = -Infinity;
    this.top_px = 0;
    this.root = panelRoot();
    this.conversations = new ConversationsDialog(this);
    this.makeTop();
    this.makeLog();
    this.composer = new Composer(this);
    this.settings = new SettingsForm(this);
    this.compare = new CompareRow(this);
    this.model.after(this.compare.button);
    this.card = new ConsentCard(this);
    this.notices = div("svc-notices");
    this.spoken = spokenLine();
    this.root.addEventListener("svc-say", ({ detail }) => this.say(detail));
    this.menu = new Menu(this);
    this.side = new SideArea(this);
    const parts = [this.top, this.modelRefusal, this.chips, this.compare.element, this.conversations.element];
    parts.push(this.middle, this.card.element, this.notices, this.composer.element);
    const below = div("svc-below", this.composer.under, this.settings.element);
    this.body = div("svc-body", ...parts);
    this.root.append(this.body, below, this.spoken);
    this.root.append(this.menu.element, this.side.line);
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.addEventListener(UNDO_EVENT, (event) => this.step(event));
    this.root.addEventListener("toggle", (event) => this.showOpened(event), true); // it does not bubble
    host.append(this.root);
    this.sizes = new ResizeObserver(() => this.settle());
    for (const part of [this.log, this.content, this.composer.element]) this.sizes.observe(part);
    this.sight = new IntersectionObserver(([{ isIntersecting }]) => (this.isInSight = isIntersecting));
    this.sight.observe(this.composer.element);
    this.clock = setInterval(() => {
      this.drawStatus();
      this.drawNotices();
      this.skipTranscript();
    }, 500);
    const { signal } = this.gone;
    const ask = () => document.hidden || connection.ask();
    window.addEventListener("online", ask, { signal });
    window.addEventListener("scroll", () => this.scrolledAround(), { signal, capture: true });
    document.addEventListener("visibilitychange", ask, { signal });
    document.addEventListener("pointerdown", (event) => this.leave(event), { signal });
    connection.join(this);
    this.draw();
  }

  /** Give the focus up for a press on a cell beside the panel: JupyterLab leaves it here. */
  leave({ target }) {
    const { activeElement: focused } = document;
    const isBeside = target.closest?.(".jp-Cell") && !this.root.contains(target);
    if (isBeside && this.root.contains(focused)) focused.blur();
  }

  remove() {
    this.connection.leave(this);
    this.side.remove();
    this.keys.remove();
    this.sizes.disconnect();
    this.sight.disconnect();
    this.gone.abort();
    clearInterval(this.clock);
    this.root.remove();
  }

  makeTop() {
    this.label = make("strong", { class: "svc-label" });
    this.model = span("svc-model");
    this.modelRefusal = div("svc-field svc-model-refusal");
    this.chips = group("svc-chips", "Changed settings");
    this.meter = new TokenMeter();
    this.buttons = HEADER_BUTTONS.map((t) => iconButton(t, () => this.send(t)));
    this.top = div("svc-top", this.conversations.button, this.label);
    this.top.append(this.model, this.meter.bar, this.meter.words, ...this.buttons);
  }

  makeLog() {
    const is = { role: "log", "aria-live": "off", "aria-label": "Transcript", tabindex: 0 };
    const does = {
      scroll: () => this.scrolled(this.isUserScrolling()),
      pointerdown: () => (this.isDragging = true),
      // what opens stays in sight
      click: ({ target }) => target.closest("summary") && (this.isAtEnd = false),
    };
    this.log = make("div", { class: "svc-log", ...is, ...does });
    this.suggestions = new Suggestions(this);
    this.older = labelButton("", () => this.askOlder());
    this.olderRow = div("svc-older", this.older);
    this.content = make("div", {}, this.olderRow, this.suggestions.element);
    this.log.append(this.content);
    this.heedUser();
    this.jump = iconButton("down", () => this.toEnd());
    this.jump.hidden = true;
    this.jump.tabIndex = -1; // Shift+Tab goes from the message to the transcript, where End does the same
    this.middle = div("svc-middle", this.log, this.jump);
    this.keys = new TranscriptKeys(this);
  }

  /** Ask the kernel for an action. */
  send(t, more = {}) {
    this.connection.send({ t, ...more });
  }

  /* -- input -- */

  key(event) {
    if (isInput(event) || event.defaultPrevented) return;
    if (event.key === BACK_KEY && this.can("stop")) this.composer.stop();
    else if (event.key === BACK_KEY && hasNoModifier(event)) this.composer.focus();
    if (event.key === "Enter" && event.target.localName === "textarea") breakLine(event);
    // JupyterLab's own key; Escape, pressed to stop, must not let what is typed next reach a cell
    if (event.ctrlKey && latinKey(event) === "m") cellOf(this.root)?.focus();
  }

  /** Undo or redo a change to the conversation, except from a field that has a text itself. */
  step({ target, detail: name }) {
    const isHere = target === this.composer.area || !target.matches("textarea, input, select");
    if (isHere && this.can(name)) this.send(name);
  }

  /** Show words in the status line for a moment, until a reply begins or ends. */
  tellBriefly(words) {
    this.brief = { words, isIdle: this.isIdle, until_ms: Date.now() + BRIEF_MS };
    this.say(words);
    this.drawStatus();
  }

  editLast() {
    const turns = this.view.turns ?? [];
    const last = turns.findLast((turn) => turn.can?.includes("edit"));
    if (last && this.isIdle) this.turns.get(last.id)?.edit();
  }

  /** Note input that scrolls; growing content, such as math, sends scroll events as well. */
  heedUser() {
    const note = () => (this.movedAt_ms = performance.now());
    // a screen reader moves the focus without a key
    for (const type of ["wheel", "touchmove", "keydown", "focusin"]) {
      this.log.addEventListener(type, note, { passive: true });
    }
    this.root.addEventListener("keydown", ({ key }) => key === "Tab" && note());
    for (const type of ["pointerup", "pointercancel"]) {
      window.addEventListener(type, () => (this.isDragging = false), { signal: this.gone.signal });
    }
  }

  isUserScrolling() {
    return this.isDragging || performance.now() - this.movedAt_ms < SCROLLING_MS;
  }

  /** Stop following the end when the user scrolls up; follow it again when it is reached. */
  scrolled(isUsers) {
    const { scrollHeight, scrollTop, clientHeight } = this.log;
    const isNear = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    const hasLeft = isUsers && scrollTop < this.top_px;
    if (hasLeft) this.movedAt_ms = performance.now(); // a scroll may go on by itself
    this.top_px = scrollTop;
    this.isAtEnd = isNear || (this.isAtEnd && !hasLeft);
    this.jump.hidden = this.isAtEnd;
    if (hasLeft && scrollTop < this.older.offsetHeight) this.askOlder();
  }

  /** Ask for older turns, unless an earlier request for them is still open. */
  askOlder() {
    const { n_older: n = 0 } = this.view;
    if (!n || this.requestedOlder === n) return;
    this.requestedOlder = n;
    this.send("older");
  }

  /** Show how many older turns there are; when they come, what was in sight stays in sight. */
  drawOlder({ n_older: n = 0 }) {
    this.olderRow.hidden = !n;
    setText(this.older, `Show older turns (${n.toLocaleString("en")})`);
  }

  scrolledAround() {
    this.menu.closeIfMoved();
    for (const menu of this.attaches) menu.place();
  }

  toEnd() {
    this.isAtEnd = true;
    this.log.focus({ preventScroll: true });
    this.settle();
  }

  /* -- drawing -- */

  get view() {
    return this.connection.view;
  }

  /** The turn of the reply that is being written. */
  get liveTurn() {
    return this.turns.get(this.connection.live.turn) ?? this.turns.get("new");
  }

  get isIdle() {
    return this.view.state === "idle" && !this.connection.isDead;
  }

  can(name) {
    return !this.connection.isDead && Boolean(this.view.can?.includes(name));
  }

  /** Draw the changed parts; the focus and the scroll position stay. */
  draw() {
    this.side.draw();
    const { view, isDead, isUnanswered } = this.connection;
    const hadFocus = this.root.contains(document.activeElement);
    this.root.classList.toggle("svc-dead", isDead);
    this.root.classList.toggle("svc-unanswered", isUnanswered);
    this.drawTop();
    const { scrollHeight, scrollTop } = this.log;
    const isMore = this.requestedOlder > view.n_older;
    this.drawTurns();
    this.drawOlder(view);
    if (isMore) {
      this.requestedOlder = 0;
      this.log.scrollTop = scrollTop + this.log.scrollHeight - scrollHeight;
    }
    this.card.draw(view, !isDead);
    this.drawNotices();
    this.composer.drawDraft();
    this.composer.drawButtons();
    this.drawStatus();
    this.settings.draw(view, !isDead);
    this.compare.draw(view, !isDead);
    this.showAgain();
    this.settle();
    const focused = document.activeElement;
    const isLost = !this.root.contains(focused) || focused.closest("[hidden]");
    if (hadFocus && isLost && !this.root.matches(".svc-away")) this.composer.focus();
  }

  /** Show the beginning of a turn that the user asks again: its old reply may have been long. */
  showAgain() {
    const { again, log } = this;
    if (!again || this.connection.live?.turn !== again.id) return;
    this.again = null;
    if (!again.element.nextElementSibling) return; // the end is followed
    this.isAtEnd = false;
    const below = again.element.getBoundingClientRect().top - log.getBoundingClientRect().top;
    if (below < 0 || below > log.clientHeight / 2) log.scrollTop += below;
  }

  drawTop() {
    const { label, name } = this.view;
    const title = label || `Conversation ${name ?? ""}`;
    this.root.ariaLabel = title;
    if (isNew(this, "title", title)) {
      const word = span("svc-kind", "Conversation ");
      this.label.replaceChildren(...(title === `Conversation ${name}` ? [word, name] : [title]));
      this.label.title = title;
    }
    this.drawMeter();
    HEADER_BUTTONS.forEach((name, at) => allow(this.buttons[at], this.can(name)));
    this.conversations.draw(this.view);
  }

  drawMeter() {
    this.meter.draw(this.connection.drafts.meter ?? this.view.meter);
  }

  drawTurns() {
    const { live, drafts, view } = this.connection;
    const { turns = [], settings, n_older: nOlder = 0 } = view;
    const { pending } = drafts;
    this.adoptNew(turns);
    const shown = turns.map((turn) => [turn, live?.turn === turn.id ? live : null]);
    const isNewTurn = live ? live.turn === "new" || !shown.some((pair) => pair[1]) : pending;
    const prompt = live?.prompt ?? pending?.text;
    const attached = [];
    const { model } = settings ?? {};
    const number = nOlder + turns.length + 1;
    if (isNewTurn) shown.push([{ id: "new", number, prompt, attached, model, choices: [] }, live]);
    const ids = new Set(shown.map(([turn]) => turn.id));
    if (isNew(this, "turns", [...ids])) this.body.style.height = "";
    for (const [id, turn] of this.turns) if (!ids.has(id)) this.drop(id, turn);
    this.suggestions.element.hidden = shown.length > 0;
    if (!shown.length) this.suggestions.draw(view);
    let at = this.suggestions.element;
    for (const [turn, itsLive] of shown) {
      if (!this.turns.has(turn.id)) this.turns.set(turn.id, new Turn(this, turn.id));
      const drawn = this.turns.get(turn.id);
      if (at.nextElementSibling !== drawn.element) at.after(drawn.element);
      at = drawn.element;
      drawn.draw(turn, itsLive, this.isIdle);
    }
  }

  /** Keep the elements of the live turn for the finished turn. */
  adoptNew(turns) {
    const added = turns.at(-1);
    const under = this.turns.get("new");
    if (!under || this.connection.drafts.pending || !added || this.turns.has(added.id)) return;
    if (this.connection.live?.turn === "new") return;
    this.turns.delete("new");
    under.id = added.id;
    this.turns.set(added.id, under);
  }

  drop(id, turn) {
    const edited = turn.form && turn.area.value;
    if (edited && edited !== turn.turn.prompt) this.connection.drafts.keep(edited, turn.chips); // the user's
    turn.attach?.remove();
    turn.element.remove();
    this.turns.delete(id);
  }

  grow(at, html, tail, nBack) {
    if (!this.liveTurn?.grow(at, html, tail, nBack)) this.drawTurns();
    this.drawStatus();
    this.settle();
  }

  drawNotices() {
    const { connection } = this;
    const { isDead, problems, view } = connection;
    const isSaid = this.settings.isSaying(view) || this.compare.isSaying(view);
    const notice = isSaid ? "" : view.notice;
    const kind = view.is_problem ? "svc-notice svc-failed" : "svc-notice";
    const { isMissing } = this.side;
    const isRestored = view.is_restored && this.can("clear");
    if (!isNew(this, "notices", [isDead, notice, kind, problems, isRestored, isMissing, view.newer, this.isIdle])) return;
    const dismissable = (kind, text, act, ...buttons) => {
      const row = div("svc-row", ...buttons, iconButton("close", act));
      return div(kind, make("span", {}, ...withCode(text)), row);
    };
    const buttons = [];
    if (isRestored) buttons.push(textButton("empty", () => this.send("clear")));
    const cells = Object.entries(view.cells ?? {});
    const setAll = () => cells.forEach(([name, value]) => this.send("set", { name, value }));
    if (cells.length) buttons.push(textButton("cells", setAll));
    const lines = [notice && dismissable(kind, notice, () => this.send("dismiss", { name: "" }), ...buttons)];
    const takeNewer = (on) => this.send("newer", { on });
    if (view.newer) {
      const add = textButton("newer", () => takeNewer(true));
      allow(add, this.isIdle);
      lines.push(dismissable("svc-notice", view.newer, () => takeNewer(false), add));
    }
    problems.forEach((text, at) => {
      if (text === view.notice) return;
      const drop = () => {
        problems.splice(at, 1);
        connection.draw();
      };
      lines.push(dismissable("svc-notice svc-failed", text, drop));
    });
    const see = () => {
      connection.isPlaceSeen = true;
      this.drawNotices();
    };
    if (isMissing) lines.push(dismissable("svc-notice", NOT_IN_SIDE, see));
    if (isDead) lines.push(div("svc-notice svc-failed", this.side.restarted()));
    this.notices.replaceChildren(...lines.filter(Boolean));
  }

  /** Show what the reply, or each column of it, waits for, with seconds counting down. */
  drawStatus() {
    this.composer.drawStatus();
    for (const [at, column] of (this.connection.live?.columns ?? []).entries()) {
      const choice = this.liveTurn?.choices[at];
      if (choice) drawWait(choice, column);
    }
  }

  /** Keep the height, while a part opens, until there are other turns or there is no room. */
  keepHeight() {
    const { height } = this.body.getBoundingClientRect();
    if (height) this.body.style.height = `${height}px`;
  }

  /** Keep Tab from the folded transcript while the panel has the same turns. */
  skipTranscript() {
    const { isDead, isUnanswered, view } = this.connection;
    const titles = document.querySelectorAll(`.${view.panel_id} > summary`);
    for (const title of titles) title.tabIndex = isDead || isUnanswered ? 0 : -1;
  }

  /** @param {FramedMessage} message */
  takeFrame(message) {
    for (const { frame } of this.turns.values()) frame?.take(message);
  }

  say(text) {
    setText(this.spoken, text);
  }

  /** Scroll to the end if the user was there and selects nothing; else show the jump button. */
  settle() {
    this.side.note();
    if (this.body.scrollHeight > this.body.clientHeight) this.body.style.height = "";
    this.suggestions.decide();
    if (this.log.isConnected && this.log.clientHeight) this.typeset([]);
    const chosen = getSelection();
    const isSelecting = !chosen.isCollapsed && this.log.contains(chosen.anchorNode);
    if (isSelecting) this.isAtEnd = false;
    if (this.isAtEnd) this.log.scrollTop = this.log.scrollHeight;
    this.scrolled(false);
    this.keepInSight();
  }

  /** Keep the composer in sight when a reply makes the panel higher, unless the card is used. */
  keepInSight() {
    const { live, drafts } = this.connection;
    const { activeElement: focused } = document;
    const isUsed = this.isInSight && this.root.contains(focused) && !this.card.element.contains(focused);
    if (isUsed && (live || drafts.pending)) showWhole(this.composer.element);
  }

  /** Show what the user opens; in the transcript, its beginning is in sight and stays there. */
  showOpened({ target }) {
    if (target.open && target.querySelector(":scope > summary:focus:not(.svc-log *)")) showWhole(target);
  }

  /** Typeset finished blocks, once they are on the page. */
  typeset(blocks) {
    this.untypeset.push(...blocks);
    if (this.log.isConnected) typeset(this.untypeset.splice(0), this.connection.model);
  }
}

/** Return the parts of a message, with code between backticks as elements. */
function withCode(text) {
  return text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? make("code", {}, part) : part));
}

export default () => {
  let connection = null;
  return {
    initialize({ model }) {
      connection = new ChatConnection(model);
    },
    render({ model, el }) {
      connection ??= new ChatConnection(model);
      const panel = new Panel(connection, el);
      return () => panel.remove();
    },
  };
};

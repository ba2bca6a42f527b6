/* One view of a rating: its progress, the card, the scale, the note, and the keys.
 *
 * The kernel decides what is rated next, keeps each rating and renders Markdown to safe HTML.
 *
 * A test compares the types with panels/rating_panel.py.
 */

/**
 * What the browser sends; `t` is the name of a row in panels/rating_panel.py. `card` is the id
 * of the card in sight, so that a key that comes late does not rate another one.
 * @typedef {{t: "hello", seq: number, on: boolean}} HelloAction as a chat's
 * @typedef {{t: "rate", card: string, choice: number, text: string, seconds_s: number}} RateAction
 *   a place on the scale from 0, with the note
 * @typedef {{t: "skip", card: string}} SkipAction
 * @typedef {{t: "undo"}} UndoAction
 * @typedef {{t: "note", card: string, text: string}} NoteAction
 * @typedef {{t: "dismiss"}} DismissAction
 */

/**
 * What the kernel sends; each message also has `seq`, its place among messages and views.
 * @typedef {{t: "ack", subshell: boolean}} AckMessage answers hello
 * @typedef {{t: "problem", text: string}} ProblemMessage
 * @typedef {{t: "heard", kind: string}} HeardMessage an action was done, or refused
 */

/**
 * The view, which the kernel sends as the trait `view`.
 * @typedef {{title: string, about: string, scale: Step[], has_notes: boolean,
 *   n_done: number, n_total: number, n_skipped: number, card: ?Card, summary: string,
 *   can: string[], notice: string, is_problem: boolean, is_fresh: boolean, main_writes: number,
 *   is_whole: boolean, nth: number, seq: number}} View
 * @typedef {{key: string, label: string}} Step of the scale
 * @typedef {{id: string, number: number, others: Part[], prompts: Part[], filled: Part[],
 *   is_open: boolean, replies: Reply[], chosen: number, note: string}} Card
 *   `filled` can be read in the prompts, `others` cannot; the prompts are open at first, or folded
 * @typedef {{name: string, html: string}} Part
 * @typedef {{html: string, spoken: string, label: string}} Reply; `spoken` is how it begins
 */

const TAKE = {
  ack: (connection, message) => connection.takeAck(message),
  problem: (connection, message) => connection.takeProblem(message),
  heard: (connection, message) => connection.takeHeard(message),
};
const LATE_SAVE = "Ratings are saved after the running cell.";
const ARROWS = { ArrowLeft: "l", ArrowRight: "r" };

class RatingConnection extends KernelConnection {
  constructor(model) {
    super(model);
    this.rated = null; // the id of a card whose rating is on its way
  }

  get lateHint() {
    return LATE_SAVE;
  }

  /** @param {HeardMessage} message */
  takeHeard({ kind }) {
    if (kind !== "hello") this.rated = null;
  }

  takeDeath() {
    this.rated = null;
  }

  takeChange(old) {
    super.takeChange(old);
    const { card, n_total: nTotal, title } = this.view;
    if (card && card.id !== old.card?.id) this.say(cardWords(card, nTotal));
    if (!card && old.card) this.say(`${title}: done`);
    if (card?.id !== old.card?.id) this.rated = null;
  }
}

class RatingPanel {
  constructor(connection, host) {
    this.connection = connection;
    this.watch = new Stopwatch();
    this.gone = new AbortController();
    this.root = panelRoot("svc-rating");
    this.makeTop();
    this.card = new RatingCard(connection.model);
    this.notices = div("svc-notices");
    this.makeControls();
    this.summary = make("div", { class: "svc-blocks svc-summary", tabindex: -1 });
    this.spoken = spokenLine();
    this.root.append(this.top, this.notices, this.card.element, this.controls, this.summary, this.spoken);
    this.root.addEventListener("keydown", (event) => this.key(event));
    host.append(this.root);
    const { signal } = this.gone;
    const look = () => {
      this.watch.heed();
      if (!document.hidden) connection.ask();
    };
    document.addEventListener("visibilitychange", look, { signal });
    window.addEventListener("online", () => connection.ask(), { signal });
    this.sizes = new ResizeObserver(() => this.placed());
    this.sizes.observe(this.root);
    connection.join(this);
    this.draw();
  }

  remove() {
    this.connection.leave(this);
    this.sizes.disconnect();
    this.gone.abort();
    this.root.remove();
  }

  makeTop() {
    this.label = make("strong", { class: "svc-label" });
    this.about = span("svc-words");
    this.level = span("svc-level");
    this.bar = make("span", { class: "svc-progress", role: "progressbar", "aria-label": "Rated" }, this.level);
    this.count = span("svc-count");
    this.undo = iconButton("undo", () => this.send("undo"), "Undo the last rating (u)");
    this.undo.setAttribute("aria-keyshortcuts", "u");
    this.top = div("svc-top", this.label, this.about, this.bar, this.count, this.undo);
  }

  makeControls() {
    this.scale = group("svc-scale", "Rating");
    const skip = keyButton("s", "Skip", () => this.sendOnCard("skip"));
    this.note = new NoteField(
      this,
      (text) => this.sendOnCard("note", { text }),
      (isEnter) => this.endNote(isEnter),
    );
    this.others = div("svc-others", skip);
    this.buttons = [skip];
    this.keys = make("span");
    this.hint = make("span");
    const away = span("svc-no-focus", "Click the reply, and these keys work: ");
    const words = make("span", {}, away, span("svc-focused", "Keys: "), this.keys);
    const line = div("svc-keys svc-words", words, this.hint);
    const row = div("svc-row", this.scale, this.others);
    this.controls = div("svc-controls", row, this.note.element, line);
  }

  /* -- input -- */

  /** The key that opens the note: of yes and no, n is no. */
  get noteKey() {
    return (this.connection.view.scale ?? []).some(({ key }) => key === "n") ? "c" : "n";
  }

  /** What each key does. */
  acts() {
    const acts = { s: () => this.sendOnCard("skip"), u: () => this.send("undo") };
    acts[this.noteKey] = () => this.connection.view.card && this.note.open();
    acts.p = () => this.card.toggle();
    (this.connection.view.scale ?? []).forEach(({ key }, at) => (acts[key] = () => this.rate(at)));
    return acts;
  }

  key(event) {
    const { target, ctrlKey, metaKey, altKey } = event;
    if (isInput(event) || event.defaultPrevented || ctrlKey || metaKey || altKey) return;
    if (target.matches("textarea, input, select")) return;
    const isArrow = event.key in ARROWS;
    if (isArrow && (event.shiftKey || target.localName === "pre")) return; // selects, or scrolls code
    const acts = this.acts();
    const act = acts[isArrow ? ARROWS[event.key] : latinKey(event)];
    if (!act) return;
    event.preventDefault();
    if (!event.repeat && !this.connection.isDead) act();
  }

  send(t, more = {}) {
    if (t === "undo" && !this.can(t)) return;
    this.connection.send({ t, ...more });
  }

  /** Send what is about the card in sight; nothing while its rating is on the way. */
  sendOnCard(t, more = {}) {
    const { card } = this.connection.view;
    const { connection } = this;
    if (!card || connection.isDead || connection.rated === card.id) return;
    if (t !== "note") connection.rated = card.id;
    connection.send({ t, card: card.id, ...more });
    this.drawButtons();
  }

  rate(choice) {
    const text = this.note.text;
    this.note.forget();
    this.sendOnCard("rate", { choice, text, seconds_s: this.watch.seconds_s });
  }

  /** Leave the note; where notes are all that is wanted, Enter keeps it and goes on. */
  endNote(isEnter) {
    if (isEnter && this.connection.view.has_notes) this.rate(0);
    else this.card.stage.focus({ preventScroll: true });
  }

  /* -- drawing -- */

  can(name) {
    return !this.connection.isDead && Boolean(this.connection.view.can?.includes(name));
  }

  draw() {
    const { isDead, isUnanswered, view } = this.connection;
    const hadFocus = this.root.contains(document.activeElement);
    const wasTyping = document.activeElement === this.note.area;
    this.root.classList.toggle("svc-dead", isDead);
    this.root.classList.toggle("svc-unanswered", isUnanswered);
    this.drawTop(view);
    this.drawScale(view);
    const isOther = this.card.draw(view.card, view.n_total);
    if (isOther) this.watch.restart();
    this.note.draw(view.card, view.has_notes, !isDead);
    this.controls.hidden = !view.card;
    this.drawButtons();
    this.drawNotices(view);
    this.summary.hidden = Boolean(view.card);
    if (isNew(this, "summary", view.summary)) setBlocks(this.summary, view.summary ?? "");
    if (hadFocus) this.keepFocus(isOther, wasTyping);
    if (hadFocus && isOther) this.keepInSight();
    this.placed();
  }

  /** Keep the focus in the panel, where the next keys are wanted. */
  keepFocus(isOther, wasTyping) {
    const { view } = this.connection;
    const focused = document.activeElement;
    const isLost = !this.root.contains(focused) || focused.closest("[hidden]");
    if (!view.card) return isLost && this.summary.focus({ preventScroll: true });
    if (isOther && view.has_notes) return this.note.open();
    if (isLost || (isOther && wasTyping)) this.card.stage.focus({ preventScroll: true });
  }

  /** Scroll to the whole panel, since JupyterLab scrolls to the cell after it. */
  keepInSight() {
    showWhole(this.root);
  }

  drawTop({ title = "", about = "", n_done: nDone = 0, n_total: nTotal = 0, n_skipped: nSkipped = 0 }) {
    this.root.setAttribute("aria-label", title);
    setText(this.label, title);
    this.label.title = title;
    setText(this.about, about);
    const skipped = nSkipped ? `, ${nSkipped} skipped` : "";
    setText(this.count, `${nDone} of ${nTotal}${skipped}`);
    this.bar.setAttribute("aria-valuemax", nTotal);
    this.bar.setAttribute("aria-valuenow", nDone);
    this.level.style.width = `${nTotal ? (100 * nDone) / nTotal : 0}%`;
    allow(this.undo, this.can("undo"));
  }

  drawScale({ scale = [], card, has_notes: hasNotes }) {
    if (isNew(this, "scale", scale)) {
      const buttons = scale.map(({ key, label }, at) => keyButton(key, label, () => this.rate(at)));
      this.scale.replaceChildren(...buttons);
      this.buttons.splice(1, 1, keyButton(this.noteKey, "Note", () => this.note.open()));
      this.others.replaceChildren(...this.buttons);
    }
    [...this.scale.children].forEach((button, at) => {
      const isChosen = card?.chosen === at;
      if (isChosen) button.setAttribute("aria-pressed", "true");
      else button.removeAttribute("aria-pressed");
    });
    this.scale.hidden = !scale.length;
    const words = hasNotes ? ["Enter keeps the note", "Esc leaves it"] : scaleKeys(scale);
    words.push("s skip", "u undo", `${this.noteKey} note`, "p prompt");
    const whole = words.map((key) => key.replaceAll(" ", "\u00a0")); // no key alone at a line's end
    setText(this.keys, whole.join(" · "));
  }

  drawButtons() {
    const { connection } = this;
    const isFree = !connection.isDead && connection.rated !== connection.view.card?.id;
    for (const button of [...this.scale.children, ...this.buttons]) allow(button, isFree);
    setText(this.hint, connection.hint);
  }

  drawNotices({ notice = "", is_problem: isProblem }) {
    const { isDead, problems } = this.connection;
    if (!isNew(this, "notices", [isDead, notice, isProblem, problems])) return;
    const kind = isProblem ? "svc-notice svc-failed" : "svc-notice";
    const dismiss = iconButton("close", () => this.send("dismiss"));
    const lines = [notice && div(kind, make("span", {}, notice), dismiss)];
    const others = problems.filter((text) => text !== notice);
    if (isDead) others.push(RESTARTED);
    lines.push(...others.map((text) => div("svc-notice svc-failed", make("span", {}, text))));
    this.notices.replaceChildren(...lines.filter(Boolean));
  }

  say(text) {
    setText(this.spoken, text);
  }

  /** Take the focus where a cell has just opened the panel, so that keys rate at once. */
  placed() {
    const { card: shown, connection, root } = this;
    shown.typeset();
    if (this.isPlaced || !connection.hasAnswer || !root.isConnected || !root.clientHeight) return;
    this.isPlaced = true;
    const { is_fresh: isFresh, card, has_notes: hasNotes, n_total: nTotal } = connection.view;
    if (!isFresh || !card || !mayTakeFocus(root)) return;
    if (hasNotes) this.note.open();
    else shown.stage.focus({ preventScroll: true });
    this.keepInSight();
    this.say(cardWords(card, nTotal));
  }
}

/** Return whether the focus is in the panel's notebook or nowhere, nobody types, and the panel's
 * cell, or the one after it, is the selected one. Shift+Enter in the last cell of a notebook makes
 * a new one and puts the cursor there: its user may be about to type, and those keys would rate. */
function mayTakeFocus(root) {
  const focused = document.activeElement ?? document.body;
  if (focused.matches("textarea, input, select, [contenteditable='true']")) return false;
  const notebook = root.closest(".jp-NotebookPanel");
  if (notebook && focused !== document.body && !notebook.contains(focused)) return false;
  const cell = root.closest(".jp-Cell");
  if (!cell) return true;
  return cell.matches(".jp-mod-active") || Boolean(cell.nextElementSibling?.matches(".jp-mod-active"));
}

/** Return the keys of the scale in words. */
function scaleKeys(scale) {
  const keys = scale.map(({ key }) => key);
  if (keys.includes("l") && keys.includes("r")) return ["← left", "→ right", "t tie"];
  if (!keys.length) return [];
  return [keys.length > 3 ? `${keys[0]} to ${keys.at(-1)} rate` : `${keys.join(" ")} rate`];
}

/** Make a button that shows its key. */
function keyButton(key, label, act) {
  const button = buttonOf("svc-button svc-step", act, make("kbd", {}, key));
  if (label !== key) button.append(` ${label}`);
  button.setAttribute("aria-keyshortcuts", key);
  return button;
}

export default () => {
  let connection = null;
  return {
    initialize({ model }) {
      connection = new RatingConnection(model);
    },
    render({ model, el }) {
      connection ??= new RatingConnection(model);
      const panel = new RatingPanel(connection, el);
      return () => panel.remove();
    },
  };
};

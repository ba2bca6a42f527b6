/* The connection to the kernel, shared by all views of a panel.
 *
 * The types below, and those of each script's own actions, name every message and its fields;
 * comments do not travel to the page. A test compares them with panels/actions.py,
 * panels/state.py and panels/worker.py.
 */

/**
 * What this script says; `t` is the name of a row in panels/actions.py.
 * @typedef {{t: "hello", seq: number, on: boolean}} HelloAction asks for the view if it has
 *   changed since `seq`; `on` where the style sheet can hide the static transcript
 * @typedef {{t: "send", text: string, attached: string[]}} SendAction with values of the
 *   notebook, by their names
 * @typedef {{t: "edit", turn: string, text: string, attached: string[],
 *   kept: string[]}} EditAction
 */

/**
 * What the kernel says; each message also has `seq`, its place among messages and views.
 * @typedef {{t: "ack", subshell: boolean}} AckMessage answers hello
 * @typedef {{t: "live", live: Live}} LiveMessage a reply begins, or its next round
 * @typedef {{t: "delta", choice: number, html: string, tail: string}} DeltaMessage
 * @typedef {{t: "column", choice: number, column: Column}} ColumnMessage
 * @typedef {{t: "status", text: string, until_ms: ?number}} StatusMessage
 * @typedef {{t: "ended", text: string}} EndedMessage
 * @typedef {{t: "problem", text: string}} ProblemMessage
 * @typedef {{t: "names", text: string, offers: Offer[], is_all: boolean}} NamesMessage
 * @typedef {{t: "size", name: string, kind: string, n_tokens: number,
 *   problem: string}} SizeMessage of a value as it would be sent
 * @typedef {{t: "heard", kind: string}} HeardMessage an action was handled, or refused
 * @typedef {{t: "found", search: string, rows: Listed[], n_more: number}} FoundMessage
 * @typedef {{name: string, n_turns: number, models: string[], asked_at: string,
 *   prompt: string}} Listed a conversation of the ledger
 * @typedef {{t: "file", id: string, name: string, kind: string, text: string}} FileMessage
 */

/**
 * The view, which the kernel sends as the trait `view`; after the first time only fields
 * and turns that have changed.
 * @typedef {{panel_id: string, name: string, label: string, state: string,
 *   main_writes: number, turns: Turn[], n_turns: number, live: ?Live, can: string[],
 *   meter: Meter, notice: string, is_problem: boolean, settings: object, fields: Field[],
 *   send_on_enter: boolean, compare: Compare, ask: ?Question, is_whole: boolean, nth: number,
 *   seq: number}} View
 * @typedef {{id: string, number: number, prompt: string, attached: Attached[], model: string,
 *   choices: Choice[],
 *   picked: number, ended: string, footer: string, badges: string[], tool_runs: ToolRun[],
 *   version: number, n_versions: number, is_pinned: boolean, is_hidden: boolean,
 *   is_stale: boolean, columns: Column[], can: string[]}} Turn
 * @typedef {{html: string, text: string}} Choice
 * @typedef {{name: string, kind: string, n_tokens: number, html: string}} Attached
 * @typedef {{name: string, kind: string, size: string}} Offer
 * @typedef {{name: string, line: string, html: string, is_error: boolean}} ToolRun
 * @typedef {{turn: string, prompt: ?string, attached: ?Attached[], model: string,
 *   choices: LiveChoice[], status: string, tool_runs: ToolRun[], columns: Column[]}} Live
 * @typedef {{label: string, version: number, problem: string, footer: string, marks: string[],
 *   is_picked: boolean, is_used: boolean, status: string, until_ms: ?number}} Column of a
 *   choice, where replies are compared
 * @typedef {{by: string, values: string[], is_blind: boolean, options: string[],
 *   max_values: number, cost: string}} Compare
 * @typedef {{html: string, tail: string}} LiveChoice
 * @typedef {{used_tokens: number, budget_tokens: number, text: string}} Meter
 * @typedef {{name: string, kind: string, default: string, label: string, help: string,
 *   minimum: ?number, maximum: ?number, step: ?number, options: ?string[]}} Field
 * @typedef {{id: string, name: string, arguments: string, about: string}} Question
 */

const HELLO_EVERY_MS = 400;
const N_HELLOS = 8;
const GAP_MS = 500;
const RESTARTED = "The kernel restarted; run the cell again.";
const LATE_STOP = "Stop works after the running cell.";
const NO_ANSWER = "No answer yet: the kernel is busy, or the cell has to be run again.";

class Line {
  constructor(model) {
    this.model = model;
    this.views = new Set();
    this.view = {};
    this.view = this.whole(model.get("view") ?? {});
    this.live = this.view.live ?? null;
    this.draft = stored("draft", this.view.panel_id);
    this.chips = JSON.parse(stored("chips", this.view.panel_id) || "[]"); // with the draft
    this.pending = null; // sent, but not yet confirmed by the kernel
    this.edited = null; // an edited prompt without an answer yet
    this.problems = [];
    this.status = null;
    this.seq = this.view.seq ?? 0;
    this.early = new Map();
    this.isDead = false;
    this.hasAnswer = false;
    this.isSubshelled = false;
    this.nHellos = 0;
    model.on("msg:custom", (message) => this.receive(message));
    model.on("change:view", () => this.receiveView(model.get("view") ?? {}));
    model.on("comm_live_update", () => this.ask());
  }

  join(view) {
    this.views.add(view);
    this.greet();
  }

  leave(view) {
    this.views.delete(view);
    if (!this.views.size) clearTimeout(this.timer);
  }

  draw() {
    this.store();
    for (const view of this.views) view.draw();
  }

  /** Keep the draft and its chips for a reload of the page. */
  store() {
    store("draft", this.view.panel_id, this.draft);
    store("chips", this.view.panel_id, this.chips.length ? JSON.stringify(this.chips) : "");
  }

  say(text) {
    for (const view of this.views) view.say(text);
  }

  send(message) {
    if (this.isDead) return false;
    try {
      this.model.send(message);
      return true;
    } catch {
      this.isDead = true;
      clearTimeout(this.timer);
      this.giveBack();
      this.say(RESTARTED);
      this.draw();
      return false;
    }
  }

  /** Ask for what was missed; if a view was lost, for all of it. */
  ask(isLost = false) {
    const on = Boolean(document.querySelector(".jp-OutputArea")); // see panel.css
    return this.send({ t: "hello", seq: isLost ? -1 : this.seq, on });
  }

  /** Send hello until the kernel gets it in a subshell, which a running cell does not block. */
  greet() {
    clearTimeout(this.timer);
    this.isSubshelled = false;
    this.nHellos = 0;
    this.hello();
  }

  hello() {
    if (this.isSubshelled || this.isDead) return;
    if (this.nHellos === N_HELLOS) return this.draw();
    this.nHellos += 1;
    this.ask();
    this.timer = setTimeout(() => this.hello(), HELLO_EVERY_MS);
  }

  /** Whether this may be no more than saved widget state. */
  get isUnanswered() {
    return !this.hasAnswer && (this.isDead || this.nHellos === N_HELLOS);
  }

  get hint() {
    if (this.isDead || this.isSubshelled || this.nHellos < N_HELLOS) return "";
    return this.hasAnswer ? LATE_STOP : NO_ANSWER;
  }

  sendPrompt(text) {
    const { chips } = this;
    this.pending = { text, chips, nTurns: this.view.turns?.length ?? 0 };
    this.draft = "";
    this.chips = [];
    this.send({ t: "send", text, attached: chips.map(({ name }) => name) });
    this.draw();
  }

  sendEdit(turn, text, chips) {
    const { n_versions: nVersions } = this.turnOf(turn) ?? {};
    this.edited = { turn, text, chips, nVersions, isHeard: false };
    this.send({ t: "edit", turn, text, ...namesOf(chips) });
  }

  /** Open the edited prompt again if it got no answer, so that it is not lost. */
  settleEdit() {
    const { turn, text, chips, nVersions } = this.edited;
    const found = this.turnOf(turn);
    this.edited = null;
    if (found?.n_versions > nVersions) return;
    if (!found) this.keep(text, chips);
    else for (const view of this.views) view.turns.get(turn)?.edit(text, view.isWaiting(), chips);
  }

  turnOf(id) {
    return (this.view.turns ?? []).find((turn) => turn.id === id);
  }

  /** Put a prompt that the kernel refused back into the composer. */
  giveBack(text = this.pending?.text, chips = this.pending?.chips) {
    this.keep(text, chips);
    this.pending = null;
  }

  keep(text, chips) {
    this.draft = [text, this.draft].filter(Boolean).join("\n");
    const names = new Set(this.chips.map(({ name }) => name));
    const back = (chips ?? []).filter(({ name }) => !names.has(name));
    this.chips = [...back.map(({ html, isKept, ...chip }) => chip), ...this.chips];
  }

  /** Take messages and views in the order in which they were sent. */
  receive(message) {
    this.isDead = false;
    if (!message.seq) return this.take(message);
    if (message.seq <= this.seq) return; // the view has it already
    this.early.set(message.seq, message);
    this.takeEarly();
  }

  receiveView(view) {
    if (this.isJoining) return;
    this.isDead = false;
    const before = [...this.early.keys()].filter((seq) => seq <= view.seq).sort((a, b) => a - b);
    for (const seq of before) {
      const message = this.early.get(seq);
      this.early.delete(seq);
      if (message.t !== "delta") this.take(message);
    }
    this.seq = view.seq ?? this.seq;
    const last = this.nth;
    const whole = this.whole(view);
    const isLost = view.nth > last + 1 || whole.turns.length < whole.n_turns;
    if (isLost && !view.is_whole) this.ask(true);
    this.takeView(whole);
    this.takeEarly();
  }

  /** Join what has changed to the view so far; saved widget state has the whole. */
  whole(view) {
    const old = view.is_whole ? {} : this.view;
    const { turns: news = [], nth = 0, n_turns: nTurns = news.length } = view;
    this.nth = nth;
    const turns = (old.turns ?? []).slice(0, nTurns);
    for (const turn of news) turns[turn.number - 1] = turn;
    const whole = { ...old, ...view, turns: turns.filter(Boolean), is_whole: true };
    this.isJoining = true;
    this.model.set("view", whole);
    this.isJoining = false;
    return whole;
  }

  takeEarly() {
    clearTimeout(this.gap);
    while (this.early.has(this.seq + 1)) {
      this.seq += 1;
      const message = this.early.get(this.seq);
      this.early.delete(this.seq);
      this.take(message);
    }
    // a missing message may never arrive; the answer to hello is the whole view
    if (this.early.size) this.gap = setTimeout(() => this.ask(true), GAP_MS);
  }

  /** @param {AckMessage|LiveMessage|StatusMessage|EndedMessage} message or another one */
  take(message) {
    TAKE[message.t]?.(this, message);
    if (message.t !== "delta") this.draw();
  }

  /** @param {AckMessage} message */
  takeAck({ subshell }) {
    this.hasAnswer = true;
    this.isSubshelled = Boolean(subshell);
    if (this.isSubshelled) clearTimeout(this.timer);
  }

  /** @param {?Live} live */
  takeLive(live) {
    if (live && !this.live) this.say("Reply started");
    this.live = live;
    this.pending = null;
  }

  /** @param {DeltaMessage} message */
  takeDelta({ choice = 0, html = "", tail = "" }) {
    if (!this.live) return this.ask(true);
    const choices = this.live.choices;
    while (choices.length <= choice) choices.push({ html: "", tail: "" });
    choices[choice].html += html;
    choices[choice].tail = tail;
    this.live.status = "";
    this.status = null;
    for (const view of this.views) view.grow(choice, html, tail);
  }

  /** @param {ColumnMessage} message */
  takeColumn({ choice, column }) {
    if (!this.live) return this.ask(true);
    this.live.columns[choice] = column;
  }

  /** @param {EndedMessage} message */
  takeEnd({ text }) {
    this.status = null;
    if (this.live) this.live.isEnded = true;
    this.say(text ?? "");
  }

  /** @param {ProblemMessage} message */
  takeProblem({ text }) {
    this.problems.push(text);
    this.say(text);
  }

  /**
   * The kernel has handled an action; a prompt that is still pending was refused.
   * @param {HeardMessage} message
   */
  takeHeard({ kind }) {
    const isIdle = this.view.state === "idle";
    if (kind === "send" && isIdle) this.giveBack();
    if (kind === "edit" && this.edited) this.edited.isHeard = true;
    if (isIdle && this.edited?.isHeard) this.settleEdit();
    for (const view of this.views) {
      view.settings.heard(kind, this.view);
      view.conversations.heard(kind, this.view);
    }
  }

  /** Call a function with each place of the page where something can be attached. */
  attaches(act) {
    for (const view of this.views) for (const each of view.attaches) act(each);
  }

  /** @param {View} view */
  takeView(view) {
    const old = this.view;
    const under = this.live;
    this.view = view;
    this.hasAnswer = true;
    const { state, live, turns = [], notice, ask } = this.view;
    if (live) this.takeLive(live);
    else if (state === "idle") this.live = null;
    if (state === "idle") this.status = null;
    const isLost = under?.turn === "new" && turns.length <= (old.turns?.length ?? 0);
    if (state === "idle" && isLost) this.giveBack(under.prompt, under.attached);
    if (notice && notice !== old.notice) this.say(notice);
    if (ask && ask.id !== old.ask?.id) this.say(`${ask.name} asks for your approval.`);
    if (this.pending && (state !== "idle" || turns.length > this.pending.nTurns)) {
      this.pending = null;
    }
    if ((this.view.main_writes ?? 0) > (old.main_writes ?? 0)) this.greet();
    this.draw();
    if (state === "idle" && this.edited?.isHeard) this.settleEdit();
  }
}

/** What is done with each kind of message from the kernel. */
const TAKE = {
  ack: (line, message) => line.takeAck(message),
  live: (line, message) => line.takeLive(message.live),
  delta: (line, message) => line.takeDelta(message),
  column: (line, message) => line.takeColumn(message),
  status: (line, message) => (line.status = message.text ? message : null),
  ended: (line, message) => line.takeEnd(message),
  problem: (line, message) => line.takeProblem(message),
  heard: (line, message) => line.takeHeard(message),
  found: (line, message) => line.views.forEach((view) => view.conversations.take(message)),
  file: (line, message) => line.views.forEach((view) => view.conversations.save(message)),
  names: (line, message) => line.attaches((each) => each.take(message)),
  size: (line, message) => line.attaches((each) => each.takeSize(message)),
};

/** Drafts outlive a reload of the page, in this tab only. */
function stored(name, panelId) {
  try {
    return sessionStorage.getItem(`svc-${name} ${panelId}`) ?? "";
  } catch {
    return ""; // the page may not store anything
  }
}

function store(name, panelId, text) {
  try {
    if (text) sessionStorage.setItem(`svc-${name} ${panelId}`, text);
    else sessionStorage.removeItem(`svc-${name} ${panelId}`);
  } catch {
    // as above
  }
}

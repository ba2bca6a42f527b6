/* The connection to the kernel, shared by all views of a panel: the order of messages, the
 * route around a running cell, and what happens after a restart.
 */

const HELLO_EVERY_MS = 400;
const N_HELLOS = 8;
const GAP_MS = 500;
const RESTARTED = "The kernel restarted; run the cell again.";
const LATE_STOP = "Stop works after the running cell.";
const NO_ANSWER = "No answer yet: the kernel is busy, or the cell has to be run again.";

class KernelConnection {
  constructor(model) {
    this.model = model;
    this.views = new Set();
    this.view = {};
    this.view = this.whole(model.get("view") ?? {});
    this.live = this.view.live ?? null;
    this.drafts = new Drafts(this);
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
    this.drafts.store();
    for (const view of this.views) view.draw();
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
      this.drafts.giveBack();
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
    const nOlder = view.n_older ?? old.n_older ?? 0;
    this.nth = nth;
    const turns = (old.turns ?? []).slice(0, nTurns);
    for (const turn of news) turns[turn.number - 1 - nOlder] = turn;
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
    this.drafts.pending = null;
  }

  /** @param {DeltaMessage} message */
  takeDelta({ choice = 0, html = "", tail = "", n_back: nBack = 0 }) {
    if (!this.live) return this.ask(true);
    const choices = this.live.choices;
    while (choices.length <= choice) choices.push({ html: "", tail: "" });
    if (nBack) choices[choice].html = withoutLast(choices[choice].html, nBack);
    choices[choice].html += html;
    choices[choice].tail = tail;
    this.live.status = "";
    this.status = null;
    for (const view of this.views) view.grow(choice, html, tail, nBack);
  }

  /** @param {ColumnMessage} message */
  takeColumn({ choice, column }) {
    if (!this.live) return this.ask(true);
    this.live.columns[choice] = column;
  }

  /** @param {StatusMessage} message */
  takeStatus(message) {
    this.status = message.text ? message : null;
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
    if (kind === "send" && isIdle) this.drafts.giveBack();
    if (kind === "edit" && this.drafts.edited) this.drafts.edited.isHeard = true;
    if (isIdle && this.drafts.edited?.isHeard) this.drafts.settleEdit();
    for (const view of this.views) {
      view.settings.heard(kind, this.view);
      view.compare.heard(kind, this.view);
      view.conversations.heard(kind, this.view);
    }
  }

  /** Call a function with each place of the page where something can be attached. */
  attaches(act) {
    for (const view of this.views) for (const menu of view.attaches) act(menu);
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
    if (state === "idle" && isLost) this.drafts.giveBack(under.prompt, under.attached);
    if (notice && notice !== old.notice) this.say(notice);
    if (ask && ask.id !== old.ask?.id) this.say(`${ask.name} asks for your approval.`);
    if (this.drafts.pending && (state !== "idle" || turns.length > this.drafts.pending.nTurns)) {
      this.drafts.pending = null;
    }
    if ((this.view.main_writes ?? 0) > (old.main_writes ?? 0)) this.greet();
    this.draw();
    if (state === "idle" && this.drafts.edited?.isHeard) this.drafts.settleEdit();
  }
}

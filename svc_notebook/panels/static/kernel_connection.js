/* The connection to the kernel, shared by all views of a panel: the order of messages, the
 * route around a running cell, and what happens after a restart.
 *
 * The connection of each panel extends it: how to merge views, and what to do after a change.
 * The panel's `TAKE` has a function for each kind of message.
 */

const HELLO_EVERY_MS = 400;
const N_HELLOS = 8;
const GAP_MS = 500;
const ENDED = "The kernel was restarted or shut down";
const RESTARTED = `${ENDED}; run the cell again.`;
const NO_ANSWER = "No answer yet: the kernel is busy, or the cell has to be run again.";

class KernelConnection {
  constructor(model) {
    this.model = model;
    this.views = new Set();
    this.view = {};
    this.view = this.whole(model.get("view") ?? {});
    this.problems = [];
    this.seq = this.view.seq ?? 0;
    this.early = new Map();
    this.isDead = false;
    this.hasAnswer = false;
    this.isSubshelled = false;
    this.nHellos = 0;
    model.on("msg:custom", (message) => this.receive(message));
    model.on("change:view", () => this.receiveView(model.get("view") ?? {}));
    this.check = () => this.ask(); // fails, and so tells that the kernel has gone
    model.on("comm_live_update", this.check);
  }

  join(view) {
    this.isLeft = false; // nor was it before the first view: a cell out of sight has none yet
    this.views.add(view);
    this.kernelChanged?.connect(this.check);
    this.greet();
  }

  leave(view) {
    this.views.delete(view);
    this.isLeft = !this.views.size;
    if (!this.isLeft) return;
    clearTimeout(this.timer);
    this.kernelChanged?.disconnect(this.check);
  }

  /** JupyterLab's signal that the notebook has another kernel, or none; restarts are not in it. */
  get kernelChanged() {
    return this.model.widget_manager?.context?.sessionContext?.kernelChanged;
  }

  draw() {
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
      this.takeDeath();
      this.say(RESTARTED);
      this.draw();
      return false;
    }
  }

  /** The kernel has ended. */
  takeDeath() {}

  /** Ask for the changes that were missed; if a view was lost, for the whole view. */
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

  /** Whether this may be only saved widget state, without a kernel. */
  get isUnanswered() {
    return !this.hasAnswer && (this.isDead || this.nHellos === N_HELLOS);
  }

  /** The text below the panel while the kernel does not answer, or answers only after its cell. */
  get hint() {
    if (this.isDead || this.isSubshelled || this.nHellos < N_HELLOS) return "";
    return this.hasAnswer ? this.lateHint : NO_ANSWER;
  }

  get lateHint() {
    return "";
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
      this.takeLate(message);
    }
    this.seq = view.seq ?? this.seq;
    const last = this.nth;
    const whole = this.whole(view);
    if (!view.is_whole && (view.nth > last + 1 || this.lacks(whole))) this.ask(true);
    this.takeView(whole);
    this.takeEarly();
  }

  /** Merge the changes into the view so far; saved widget state has the whole view. */
  whole(view) {
    const old = view.is_whole ? {} : this.view;
    this.nth = view.nth ?? 0;
    const whole = { ...this.joined(old, view), is_whole: true };
    this.isJoining = true;
    this.model.set("view", whole);
    this.isJoining = false;
    return whole;
  }

  joined(old, view) {
    return { ...old, ...view };
  }

  /** Whether the view says that it has a part which never arrived. */
  lacks() {
    return false;
  }

  takeEarly() {
    const { seq } = this;
    while (this.early.has(this.seq + 1)) {
      this.seq += 1;
      const message = this.early.get(this.seq);
      this.early.delete(this.seq);
      this.take(message);
    }
    if (this.early.size && this.isGapOpen && this.seq === seq) return; // more arrives meanwhile
    clearTimeout(this.gap);
    // a missing message may never arrive; the answer to hello is the whole view
    this.isGapOpen = this.early.size > 0;
    if (this.isGapOpen) this.gap = setTimeout(() => this.askWhole(), GAP_MS);
  }

  askWhole() {
    this.isGapOpen = false;
    this.ask(true);
  }

  take(message) {
    TAKE[message.t]?.(this, message);
    this.draw();
  }

  /** Take a message that arrived after a view that was sent later. */
  takeLate(message) {
    this.take(message);
  }

  /** @param {AckMessage} message */
  takeAck({ subshell }) {
    this.hasAnswer = true;
    this.isSubshelled = Boolean(subshell);
    if (this.isSubshelled) clearTimeout(this.timer);
  }

  /** @param {ProblemMessage} message */
  takeProblem({ text }) {
    this.problems.push(text);
    this.say(text);
  }

  takeView(view) {
    const old = this.view;
    this.view = view;
    this.hasAnswer = true;
    this.takeChange(old);
    if ((view.main_writes ?? 0) > (old.main_writes ?? 0)) this.greet();
    this.draw();
  }

  /** Act on a change of the view before the view is drawn. */
  takeChange(old) {
    const { notice } = this.view;
    if (notice && notice !== old.notice) this.say(notice);
  }
}

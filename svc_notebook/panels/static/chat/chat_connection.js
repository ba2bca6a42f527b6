/* The chat's connection to the kernel: how turns are joined, and the reply that is being written. */

const LATE_STOP = "Stop works after the running cell.";

class ChatConnection extends KernelConnection {
  constructor(model) {
    super(model);
    this.live = this.view.live ?? null;
    this.drafts = new Drafts(this);
    this.status = null;
  }

  draw() {
    this.drafts.store();
    super.draw();
  }

  takeDeath() {
    if (this.live) this.live.isEnded = true;
    for (const column of this.live?.columns ?? []) column.status = "";
    this.drafts.giveBack();
  }

  get lateHint() {
    return LATE_STOP;
  }

  /** Replace the turns that have changed. */
  joined(old, view) {
    const { turns: news = [], n_turns: nTurns = news.length } = view;
    const nOlder = view.n_older ?? old.n_older ?? 0;
    const turns = (old.turns ?? []).slice(0, nTurns);
    for (const turn of news) turns[turn.number - 1 - nOlder] = turn;
    return { ...old, ...view, turns: turns.filter(Boolean) };
  }

  lacks({ turns, n_turns: nTurns }) {
    return turns.length < nTurns;
  }

  /** @param {AckMessage|LiveMessage|StatusMessage|EndedMessage} message or another one */
  take(message) {
    TAKE[message.t]?.(this, message);
    if (message.t !== "delta") this.draw();
  }

  takeLate(message) {
    if (message.t !== "delta") this.take(message);
  }

  /** @param {?Live} live */
  takeLive(live) {
    if (live && !this.live) this.say("Reply started");
    this.live = live;
    if (!live?.asker) this.drafts.pending = null; // else it waits, or was refused
  }

  /** @param {DeltaMessage} message */
  takeDelta({ choice = 0, html = "", tail: end = "", n_back: nBack = 0, n_same: nSame = 0 }) {
    if (!this.live) return this.ask(true);
    const choices = this.live.choices;
    while (choices.length <= choice) choices.push({ html: "", tail: "" });
    if (nBack) choices[choice].html = withoutLast(choices[choice].html, nBack);
    choices[choice].html += html;
    const tail = [...choices[choice].tail].slice(0, nSame).join("") + end;
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

  /**
   * The kernel has handled an action; a prompt that is still pending was refused.
   * @param {HeardMessage} message
   */
  takeHeard({ kind }) {
    const isIdle = this.view.state === "idle";
    if (kind === "send" && (isIdle || this.live?.asker)) this.drafts.giveBack();
    if (kind === "edit" && this.drafts.edited) this.drafts.edited.isHeard = true;
    this.drafts.settleEdit();
    for (const view of this.views) {
      view.settings.forget();
      view.compare.heard(kind, this.view);
      view.conversations.heard(kind, this.view);
    }
  }

  /** Call a function with each place of the page where something can be attached. */
  attaches(act) {
    for (const view of this.views) for (const menu of view.attaches) act(menu);
  }

  takeView(view) {
    super.takeView(view);
    this.drafts.settleEdit();
  }

  takeChange(old) {
    const under = this.live;
    const { state, live, turns = [], ask, newer } = this.view;
    if (live) this.takeLive(live);
    else if (state === "idle") this.live = null;
    if (state === "idle") this.status = null;
    const isLost = under?.turn === "new" && !under.asker && turns.length <= (old.turns?.length ?? 0);
    if (state === "idle" && isLost) this.drafts.giveBack(under.prompt, under.attached);
    super.takeChange(old);
    if (newer && newer !== old.newer) this.say(newer);
    if (ask && ask.id !== old.ask?.id) this.say(ask.problem || `${ask.name} asks for your approval.`);
    const { pending } = this.drafts;
    if (pending && (live ?? under)?.asker) pending.nTurns = turns.length;
    else if (pending && (state !== "idle" || turns.length > pending.nTurns)) this.drafts.pending = null;
  }
}

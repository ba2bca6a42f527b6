/* Drafts: prompts that the kernel has not taken yet, shared by all views of a panel.
 *
 * A text that the kernel refused or never received comes back into the composer or the editor.
 */

const MEASURE_AFTER_MS = 500; // without a key
const CHARS_PER_MS = 50; // a long draft is measured less often
const TAKE_DRAFT = "svc-notebook:draft";

class Drafts {
  constructor(connection) {
    this.connection = connection;
    this.id = newId(); // pages have different drafts
    this.meter = null; // the size of the next request with the draft
    this.measured = "";
    this.key = this.findKey();
    this.read(stored("draft", this.key));
    // after a reload, the panel whose draft it is may come later than this one
    if (connection.view.is_new && !this.text && !this.chips.length) this.takeOver();
    document.addEventListener(TAKE_DRAFT, (event) => this.give(event));
    this.pending = null; // sent, but not yet confirmed by the kernel
    this.edited = null; // an edited prompt without an answer yet
  }

  /** Return the key of the draft: after the panel's id, it is the same after a restart. */
  findKey() {
    const { model, view } = this.connection;
    return [view.panel_id, model.widget_manager?.context?.path, view.name].join("\n");
  }

  /** Take a stored draft; none empties it. */
  read(draft) {
    const { text = "", chips = [] } = JSON.parse(draft || "{}");
    Object.assign(this, { text, chips }); // the chips are attached to the text
  }

  /** Take the draft of another panel of this conversation that is not used any more. */
  takeOver() {
    const place = this.key.slice(this.key.indexOf("\n"));
    for (const detail of storedKeys("draft").filter((key) => key.endsWith(place))) {
      const draft = stored("draft", detail);
      const event = new CustomEvent(TAKE_DRAFT, { detail, cancelable: true });
      if (!document.dispatchEvent(event)) continue;
      store("draft", detail, "");
      return this.read(draft);
    }
  }

  /** Give the draft away, unless this panel is in use. */
  give(event) {
    const { isLeft, isDead } = this.connection;
    if (event.detail !== this.key) return;
    if (!isLeft && !isDead) event.preventDefault();
    else this.read();
  }

  /** Keep the draft and its chips for a reload of the page, and for the next panel. */
  store() {
    const { text, chips } = this;
    const key = this.findKey();
    if (key !== this.key) store("draft", this.key, "");
    this.key = key;
    store("draft", key, text || chips.length ? JSON.stringify({ text, chips }) : "");
    this.measure();
  }

  /** Ask for the size of the next request, once the draft has not changed for a while. */
  measure() {
    const { text, chips, connection } = this;
    const n_attached = chips.reduce((sum, chip) => sum + (chip.n_tokens ?? 0), 0);
    const draft = JSON.stringify([text, n_attached, connection.view.meter]);
    if (draft === this.measured) return;
    this.measured = draft;
    clearTimeout(this.timer);
    if (!text.trim() && !n_attached) {
      this.meter = null;
      return;
    }
    const send = () => connection.send({ t: "draft", id: this.id, text, n_attached });
    this.timer = setTimeout(send, MEASURE_AFTER_MS + text.length / CHARS_PER_MS);
  }

  /** @param {MeterMessage} message */
  takeMeter({ id, meter }) {
    if (id === this.id && (this.text.trim() || this.chips.length)) this.meter = meter;
  }

  sendPrompt(text) {
    const { chips } = this;
    this.pending = { text, chips, nTurns: this.connection.view.turns?.length ?? 0 };
    this.text = "";
    this.chips = [];
    this.connection.send({ t: "send", text, attached: chips.map(({ name }) => name) });
    this.connection.draw();
  }

  sendEdit(turn, text, chips) {
    const { n_versions: nVersions } = this.turnOf(turn) ?? {};
    this.edited = { turn, text, chips, nVersions, isHeard: false };
    this.connection.send({ t: "edit", turn, text, ...namesOf(chips) });
  }

  /** Once it is handled, open the edited prompt again if it got no answer, so that it is not lost. */
  settleEdit() {
    if (this.connection.view.state !== "idle" || !this.edited?.isHeard) return;
    const { turn: id, text, chips, nVersions } = this.edited;
    const turn = this.turnOf(id);
    this.edited = null;
    if (turn?.n_versions > nVersions) return;
    if (!turn) this.keep(text, chips);
    else for (const view of this.connection.views) view.turns.get(id)?.edit(text, view.composer.isWaiting(), chips);
  }

  turnOf(id) {
    return (this.connection.view.turns ?? []).find((turn) => turn.id === id);
  }

  /** Put a prompt that the kernel refused back into the composer. */
  giveBack(text = this.pending?.text, chips = this.pending?.chips) {
    this.keep(text, chips);
    this.pending = null;
  }

  keep(text, chips) {
    this.text = [text, this.text].filter(Boolean).join("\n");
    const names = new Set(this.chips.map(({ name }) => name));
    const back = (chips ?? []).filter(({ name }) => !names.has(name));
    this.chips = [...back.map(({ html, isKept, was, ...chip }) => chip), ...this.chips];
  }
}

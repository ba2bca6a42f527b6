/* The note on what is rated now. Keys that are typed here are text, never ratings. */

class NoteField {
  /** `keep` is called with the text when the field loses the focus, `done` after Enter. */
  constructor(panel, keep, done) {
    Object.assign(this, { panel, keep, done });
    this.area = make("textarea", { rows: 1, "aria-label": "Note", placeholder: "Note", dir: "auto" });
    this.area.title = "Enter keeps the note, Shift+Enter breaks the line, Esc leaves it";
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("input", () => this.typed());
    this.area.addEventListener("blur", () => this.left());
    this.element = div("svc-note", this.area);
    this.card = null;
  }

  /** The key under which the text outlives a reload of the page, even with another kernel. */
  get place() {
    return `${this.panel.connection.view.title} ${this.card?.id}`;
  }

  get text() {
    return this.area.value.trim();
  }

  draw(card, isAlways, isAlive) {
    const isOther = card?.id !== this.card?.id;
    const isTyping = document.activeElement === this.area;
    const isChanged = isOther || card?.note !== this.card?.note;
    this.card = card;
    if (card && isChanged && (isOther || !isTyping)) {
      this.area.value = (isOther && stored("note", this.place)) || card.note;
    }
    this.element.hidden = !card || !(isAlways || this.text || (isTyping && !isOther));
    this.area.disabled = !isAlive;
    if (!this.element.hidden) fit(this.area);
  }

  open() {
    this.element.hidden = false;
    this.area.focus({ preventScroll: true });
    fit(this.area);
  }

  key(event) {
    event.stopPropagation();
    if (isInput(event) || !["Enter", "Escape"].includes(event.key)) return;
    if (event.key === "Enter" && event.shiftKey) return breakLine(event);
    event.preventDefault();
    this.done(event.key === "Enter");
  }

  typed() {
    store("note", this.place, this.area.value);
    fit(this.area);
  }

  /** Send a changed text to the kernel, which tells the other tabs. */
  left() {
    if (!this.card || this.text === this.card.note) return;
    this.keep(this.text);
  }

  /** Delete the text kept for a reload, since the rating now has it. */
  forget() {
    store("note", this.place, "");
  }
}

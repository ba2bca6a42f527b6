/* A table of a reply: the button that makes a DataFrame of it, and the form for its name. */

const NAME_FIRST = "table";
const AS_CELL = "A cell with the values makes it again, as in Run All after a restart";

/** Wrap a table with its button; a click sends an event to the turn around it. */
function withFrame(box) {
  const open = () => box.dispatchEvent(new CustomEvent("svc-frame", { bubbles: true, detail: { box } }));
  const row = div("svc-table-row", textButton("frame", open));
  return div("svc-table", box, row);
}

/** Asks for a variable's name; the kernel checks it and makes the DataFrame. */
class FrameForm {
  constructor(turn, table, place) {
    Object.assign(this, { turn, place });
    this.panel = turn.panel;
    this.row = table.parentElement.querySelector(".svc-table-row");
    this.button = this.row.firstChild;
    this.id = newId();
    this.isTaken = false;
    const input = () => this.say("", false);
    const is = { type: "text", value: NAME_FIRST, spellcheck: "false", autocomplete: "off", input };
    const label = "Name of the DataFrame";
    this.name = make("input", { ...is, "aria-label": label, title: label, "aria-describedby": this.id });
    this.make = textButton("make", () => this.send(), "svc-main");
    const cancel = textButton("cancel", () => this.close());
    this.refusal = make("small", { id: this.id, class: "svc-refusal", hidden: "" });
    const has = { class: "svc-frame", role: "group", "aria-label": "As DataFrame", keydown: (event) => this.key(event) };
    this.element = make("div", has, this.name, this.make, cancel, this.refusal);
    this.row.replaceChildren(this.element);
    this.name.focus();
    this.name.select();
  }

  key(event) {
    if (isInput(event)) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      this.close();
    } else if (event.key === "Enter" && event.target === this.name) {
      event.preventDefault();
      this.send();
    }
  }

  send() {
    const { id, place, isTaken: on } = this;
    const name = this.name.value.trim().normalize("NFKC"); // as Python reads names
    this.turn.send("frame", { ...place, name, on, id });
  }

  /** Show why there is no DataFrame; if the name is taken, offer to replace the variable. */
  say(problem, isTaken) {
    this.isTaken = isTaken;
    setText(this.make, BUTTONS[isTaken ? "replace" : "make"].label);
    setText(this.refusal, problem);
    this.refusal.hidden = !problem;
    this.name.setAttribute("aria-invalid", Boolean(problem));
  }

  /** @param {FramedMessage} message */
  take({ id, text, problem, is_taken: isTaken, code }) {
    if (id !== this.id) return;
    this.panel.say(problem || text);
    if (problem) return this.say(problem, isTaken);
    this.close();
    this.row.append(span("svc-words", text));
    if (code) this.offer(code);
  }

  /** Offer a cell that makes the DataFrame again: the notebook has no other trace of it. */
  offer(code) {
    const row = div("svc-table-row");
    const insert = textButton("insert", () => insertBelow(code, row, row));
    insert.title = AS_CELL;
    row.append(insert);
    this.row.append(row);
  }

  close() {
    this.row.replaceChildren(this.button);
    this.button.focus({ preventScroll: true });
    this.turn.frame = null;
  }
}

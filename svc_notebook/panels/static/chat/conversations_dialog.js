/* The list of the ledger's conversations: search, open, begin, rename and export.
 *
 * The open dialog replaces only the transcript, so that Stop and notices stay in sight.
 */

const SEARCH_AFTER_MS = 200;
const SEARCHING = "Searching …";
const SEARCH = "Search names, prompts and replies";

class ConversationsDialog {
  constructor(panel) {
    this.panel = panel;
    this.unhandled = ""; // the action that the kernel has not handled yet
    this.rows = [];
    this.button = iconButton("list", () => this.toggle());
    this.button.ariaExpanded = "false";
    const input = () => this.typed();
    this.search = make("input", { type: "search", "aria-label": SEARCH, title: SEARCH, placeholder: "Search", input });
    const does = { input: () => this.drawRename() };
    this.name = make("input", { "aria-label": "Name of this conversation", autocomplete: "off", ...does });
    this.renameButton = textButton("rename", () => this.rename());
    const begin = textButton("new", () => this.send("new"), "svc-main");
    const here = group("svc-here", "This conversation");
    here.append(make("span", {}, "This conversation"), this.name, this.renameButton);
    here.append(textButton("export_md", () => this.export("md")));
    here.append(textButton("export_json", () => this.export("json")));
    const close = iconButton("close", () => this.close(), "Close the list");
    const top = div("svc-here", this.search, begin, close);
    this.list = make("ul", { "aria-label": "Conversations in the ledger" });
    this.count = make("div", { class: "svc-words", role: "status" });
    const is = { role: "dialog", "aria-label": "Conversations", hidden: "", keydown: (event) => this.key(event) };
    this.element = make("div", { class: "svc-conversations", ...is }, top, here, this.count, this.list);
  }

  toggle() {
    if (!this.element.hidden) return this.close();
    const { log, middle, isAtEnd } = this.panel;
    this.place = { isAtEnd, top: log.scrollTop };
    this.panel.keepHeight();
    middle.hidden = true;
    this.element.hidden = false;
    this.button.ariaExpanded = "true";
    this.search.value = "";
    this.search.focus({ preventScroll: true });
    showWhole(this.element);
    this.find();
  }

  /** Show the transcript again, where it was. */
  close(focused = this.button) {
    const { panel } = this;
    if (this.element.hidden) return;
    clearTimeout(this.timer);
    this.element.hidden = true;
    panel.middle.hidden = false;
    this.button.ariaExpanded = "false";
    panel.isAtEnd = this.place.isAtEnd;
    panel.log.scrollTop = this.place.top;
    panel.settle();
    focused.focus({ preventScroll: true });
  }

  /** Move among the search and the list with the arrows. */
  key(event) {
    if (isInput(event)) return;
    const by = UP_DOWN[event.key];
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      this.close();
    } else if (event.key === "Delete" && this.places().includes(event.target)) {
      event.preventDefault();
      this.confirm(this.rows[this.places().indexOf(event.target)]);
    } else if (event.key === "Enter" && event.target === this.name) {
      event.preventDefault();
      this.rename();
    } else if (by) {
      const places = [this.search, ...this.places()];
      const at = places.indexOf(event.target) + by;
      if (at < by) return;
      event.preventDefault();
      places[Math.max(0, Math.min(at, places.length - 1))].focus();
    }
  }

  send(t, more = {}) {
    this.unhandled = t;
    this.panel.send(t, more);
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.find(), SEARCH_AFTER_MS);
  }

  find() {
    setText(this.count, SEARCHING);
    this.panel.send("find", { text: this.search.value });
  }

  rename() {
    if (isAllowed(this.renameButton)) this.send("rename", { name: this.name.value.trim() });
  }

  export(kind) {
    this.file = `${this.panel.id}-${kind}`;
    this.panel.send("export", { name: kind, id: this.file });
  }

  /** Save a file if this view asked for it; the message goes to all views and pages. */
  save({ id, name, kind, text }) {
    if (id !== this.file) return;
    this.file = "";
    const url = URL.createObjectURL(new Blob([text], { type: kind }));
    make("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
    this.panel.say(`Saved as ${name}`);
  }

  /** After the kernel has handled an action: close the list if another conversation is open. */
  heard(kind, { is_problem: isProblem }) {
    if (kind === "find" && this.count.textContent === SEARCHING) setText(this.count, "");
    if (kind !== this.unhandled || this.element.hidden) return;
    this.unhandled = "";
    if (isProblem) return;
    if (kind === "rename" || kind === "remove") return this.find();
    this.place = { isAtEnd: true, top: 0 };
    this.close(this.panel.composer);
  }

  /** @param {FoundMessage} message */
  take({ search, rows, n_more: nMore }) {
    if (this.element.hidden || search !== this.search.value) return;
    const focused = this.rows[this.places().indexOf(document.activeElement)]?.name;
    this.rows = rows;
    this.searched = search.trim();
    this.list.replaceChildren(...rows.map((row) => make("li", {}, this.row(row), this.deleteButton(row))));
    this.list.scrollTop = 0;
    this.places()[rows.findIndex(({ name }) => name === focused)]?.focus();
    const n = rows.length;
    let words = counted(n, "conversation");
    if (nMore) words = `The newest ${n} of ${counted(n + nMore, "conversation")}; search to find the others.`;
    if (!rows.length) words = search ? `No conversation has “${search}”.` : "The ledger has none yet.";
    setText(this.count, words);
    this.draw(this.panel.view);
  }

  places() {
    return [...this.list.querySelectorAll("button.svc-row")];
  }

  deleteButton(row) {
    return iconButton("delete", () => this.confirm(row), `Delete the conversation ${row.name}`);
  }

  /** Ask, in the row of a conversation, whether to delete it. */
  confirm(row) {
    const at = this.rows.indexOf(row);
    const line = this.list.children[at];
    const back = () => {
      line.replaceChildren(this.row(row), this.deleteButton(row));
      this.draw(this.panel.view);
      line.firstChild.focus();
    };
    const remove = textButton("remove", () => {
      this.send("remove", { name: row.name });
      this.search.focus();
    });
    const keep = textButton("keep", back);
    const elsewhere = row.is_elsewhere ? " Another panel of this notebook has it open." : "";
    const words = `Delete ${row.name} (${counted(row.n_turns, "turn")}) for good?${elsewhere} The ledger keeps what it cost.`;
    const keydown = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      back();
    };
    const is = { class: "svc-confirm", role: "alertdialog", "aria-label": words, keydown };
    line.replaceChildren(make("div", is, make("span", { dir: "auto" }, words), remove, keep));
    keep.focus();
  }

  row({ name, n_turns: nTurns, models, asked_at: askedAt, prompt, is_elsewhere: isElsewhere }) {
    const click = () => this.send("open", { name });
    const when = new Date(askedAt).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    const about = [when, `${counted(nTurns, "turn")} in the ledger`, ...models];
    if (isElsewhere) about.push("open in another panel");
    return make(
      "button",
      { type: "button", class: "svc-row", click },
      make("strong", { dir: "auto", title: name }, ...marked(name, this.searched)),
      prompt === name ? null : make("span", { dir: "auto", title: prompt }, ...marked(prompt, this.searched)),
      make("small", {}, about.join(" · ")),
    );
  }

  /** Show the name of the open conversation, unless it is being changed. */
  draw({ name = "" }) {
    allow(this.button, !this.panel.connection.isDead);
    if (isNew(this, "drawn", name)) this.name.value = name;
    this.drawRename();
    [...this.list.children].forEach(({ firstChild: button }, at) => {
      button.setAttribute("aria-current", this.rows[at].name === name);
    });
  }

  drawRename() {
    const typed = this.name.value.trim();
    allow(this.renameButton, Boolean(typed) && typed !== this.panel.view.name);
  }
}

/** Return a text with the searched words marked; as in the ledger, only ASCII has no case. */
function marked(text, searched) {
  if (!searched) return [text];
  const lower = (part) => part.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
  const parts = lower(text).split(lower(searched));
  let at = 0;
  return parts.flatMap((part, n) => {
    const begin = n ? [make("mark", {}, text.slice(at, (at += searched.length)))] : [];
    return [...begin, text.slice(at, (at += part.length))];
  });
}

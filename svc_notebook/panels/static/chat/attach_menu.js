/* What a message takes along: the list that opens at `@`, chips below the text, and what a
 * turn has. Only names that were chosen are sent; the kernel reads their values then.
 */

const MENTION = /(?<![\w.%+-])@([\p{L}\p{M}\p{N}_[\]-]*)$/u; // not in an address
const WORD = /^[\p{L}\p{N}]/u;
const ASK_AFTER_MS = 150;
const LIST_PX = 420;

class AttachMenu {
  /** Attach values to the text in `area`; `holder` has the chips, `changed` draws them. */
  constructor(panel, area, holder, changed) {
    Object.assign(this, { panel, area, holder, changed, parts: new Map(), shown: [] });
    this.id = newId();
    this.element = group("svc-attached", "Attached");
    const is = { role: "listbox", id: this.id, "aria-label": "Attach", popover: "manual" };
    const mousedown = (event) => event.preventDefault(); // the focus stays
    this.list = make("div", { class: "svc-menu svc-names", ...is, mousedown });
    area.setAttribute("aria-autocomplete", "list");
    area.setAttribute("aria-controls", this.id);
    for (const name of ["input", "click"]) area.addEventListener(name, () => this.look());
    area.addEventListener("beforeinput", (event) => this.keepApart(event));
    area.addEventListener("blur", () => this.close());
    panel.root.append(this.list);
    panel.attaches.add(this);
    this.draw();
  }

  remove() {
    this.close();
    this.list.remove();
    this.panel.attaches.delete(this);
  }

  /* -- the list -- */

  get isOpen() {
    return this.list.matches(":popover-open");
  }

  /** Return what is typed behind an `@` before the cursor, if there is one. */
  mention() {
    const { value, selectionStart: end } = this.area;
    const match = MENTION.exec(value.slice(0, end));
    return match && { start: match.index, end, text: match[1] };
  }

  /** Show the values that fit the name being typed. */
  look() {
    const at = this.mention();
    if (!at) return this.close();
    if (at.start === this.dismissed) return;
    this.dismissed = null;
    if (this.known) this.show();
    this.ask();
  }

  /** Ask the kernel for names once, and again only if the list was not complete. */
  ask() {
    const { text } = this.mention();
    const { known } = this;
    clearTimeout(this.timer);
    const isKnown = known && (known.is_all ? text.startsWith(known.text) : text === known.text);
    if (isKnown || this.requested != null) return;
    const send = () => {
      this.requested = text;
      this.panel.send("names", { text });
    };
    if (known) this.timer = setTimeout(send, ASK_AFTER_MS);
    else send();
  }

  /** @param {NamesMessage} message */
  take(message) {
    if (message.text !== this.requested) return;
    const isFirst = !this.known;
    this.known = message;
    this.requested = null;
    this.look();
    if (isFirst && this.isOpen) this.panel.say(`${this.shown.length} names to attach`);
  }

  show() {
    const { text } = this.mention();
    const [wanted, lower] = [text.toLowerCase(), ({ name }) => name.toLowerCase()];
    const has = new Set(namesOf(this.holder.chips).attached);
    const matching = this.known.offers.filter((offer) => lower(offer).includes(wanted));
    const isNewName = ({ name }) => !has.has(name);
    const fit = (offer) =>
      (offer.name === text) + (lower(offer) === wanted) + lower(offer).startsWith(wanted);
    this.shown = matching.filter(isNewName).sort((a, b) => fit(b) - fit(a));
    if (!this.shown.length) return this.hide();
    const options = this.shown.map((offer, at) => {
      const is = { role: "option", id: `${this.id}-${at}`, click: () => this.choose(offer) };
      const about = [offer.kind, offer.size].filter(Boolean).join(" · ");
      const { start } = offer;
      const code = start && make("span", { class: "svc-start", title: start }, start);
      return make("div", is, make("b", {}, offer.name), code, make("span", {}, about));
    });
    this.list.replaceChildren(...options);
    if (!this.isOpen) this.list.showPopover();
    this.place();
    this.point(0);
  }

  /** Put the list above the text, or below where there is no room. */
  place() {
    if (!this.isOpen) return;
    const { left, top, bottom } = this.area.getBoundingClientRect();
    const { style } = this.list;
    style.width = `${Math.min(LIST_PX, innerWidth - 16)}px`;
    const { offsetWidth: width, offsetHeight: height } = this.list;
    style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
    style.top = `${top > height + 8 ? top - height - 4 : bottom + 4}px`;
  }

  point(at) {
    this.at = (at + this.shown.length) % this.shown.length;
    [...this.list.children].forEach((option, n) => {
      option.setAttribute("aria-selected", n === this.at);
    });
    const option = this.list.children[this.at];
    showWhole(option);
    this.area.setAttribute("aria-activedescendant", option.id);
  }

  hide() {
    if (this.isOpen) this.list.hidePopover();
    this.list.replaceChildren();
    this.area.removeAttribute("aria-activedescendant");
  }

  close() {
    clearTimeout(this.timer);
    this.hide();
    this.known = this.requested = this.dismissed = null;
  }

  /** Handle a key of the open list; return whether it was one. */
  key(event) {
    const { key } = event;
    if (!this.isOpen || !hasNoModifier(event)) return false;
    const by = UP_DOWN[key];
    if (by) this.point(this.at + by);
    else if (key === "Enter" || key === "Tab") this.choose(this.shown[this.at]);
    else if (key === "Escape") this.dismiss();
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  dismiss() {
    this.dismissed = this.mention()?.start;
    this.hide();
  }

  /** Make a chip of a name, and complete the name in the text. */
  choose({ name, kind }) {
    const { start, end } = this.mention();
    this.close();
    this.area.setSelectionRange(start, end);
    insertText(this.area, name);
    this.chosenAt = this.area.selectionEnd;
    this.set([...this.holder.chips.filter((chip) => chip.name !== name), { name, kind }]);
    this.panel.send("size", { name });
    this.panel.say(`${name} is attached`);
  }

  /** Put a blank between a name that was just chosen and a word that is typed. */
  keepApart(event) {
    const { chosenAt, area } = this;
    this.chosenAt = null;
    const isBehind = area.selectionStart === chosenAt && area.selectionEnd === chosenAt;
    if (!isBehind || event.inputType !== "insertText" || !WORD.test(event.data ?? "")) return;
    event.preventDefault();
    insertText(area, ` ${event.data}`);
  }

  /* -- the chips -- */

  set(chips) {
    this.holder.chips = chips;
    this.changed();
  }

  /** @param {SizeMessage} message */
  takeSize({ name, kind, n_tokens, problem }) {
    const sized = (chip) =>
      chip.name === name && !chip.isKept ? { ...chip, kind, n_tokens, problem } : chip;
    this.set(this.holder.chips.map(sized));
  }

  /** Draw the chips; those that stay keep their elements. */
  draw() {
    const { chips } = this.holder;
    for (const [name, part] of this.parts) {
      if (chips.some((chip) => chip.name === name)) continue;
      part.element.remove();
      this.parts.delete(name);
    }
    for (const chip of chips) {
      const { element, about } = this.part(chip.name);
      setText(about, chip.problem?.replace(`${chip.name} `, "") || sizeText(chip));
      element.classList.toggle("svc-failed", Boolean(chip.problem));
    }
    this.element.hidden = !chips.length;
  }

  part(name) {
    if (!this.parts.has(name)) {
      const drop = () => {
        this.set(this.holder.chips.filter((chip) => chip.name !== name));
        this.area.focus({ preventScroll: true });
      };
      const about = span("svc-words");
      const cross = iconButton("close", drop, `Remove ${name}`);
      const words = make("span", {}, make("b", {}, name), " ", about);
      const element = span("svc-item", words, cross);
      this.element.append(element);
      this.parts.set(name, { element, about });
    }
    return this.parts.get(name);
  }
}

function sizeText({ kind, n_tokens: n }) {
  return [kind, n == null ? "" : `~${counted(n, "token")}`].filter(Boolean).join(" · ");
}

/** Return a message's fields about its chips: names to read, and attachments that stay. */
function namesOf(chips) {
  const names = (isKept) =>
    chips.filter((chip) => Boolean(chip.isKept) === isKept).map(({ name }) => name);
  return { attached: names(false), kept: names(true) };
}

/** Show the values attached to a turn's prompt: one line each, with its text folded. */
function drawAttached(box, attached) {
  const items = attached.map((item) => {
    const body = div("svc-blocks");
    setBlocks(body, item.html);
    const line = make("summary", {}, make("b", {}, item.name), ` ${sizeText(item)}`);
    return make("details", { class: "svc-call" }, line, body);
  });
  box.replaceChildren(...items);
}

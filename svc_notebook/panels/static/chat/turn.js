/* One turn: a prompt, its tool calls and replies, and what can be done with them. */

const STALE = "The turns above have changed since this was answered. Ask again sends them as they are now";
const CELL_OR_ERROR = /^(?:Err|(?:In|Out)\[.*)$/; // stay as they were sent

class Turn {
  constructor(panel, id) {
    this.panel = panel;
    this.id = id;
    this.choices = [];
    this.you = div("svc-who");
    this.prompt = make("div", { class: "svc-prompt", dir: "auto" });
    this.wholeLine = make("summary");
    const toggle = () => this.whole.open || showWhole(this.whole);
    this.whole = make("details", { class: "svc-whole", toggle }, this.wholeLine);
    this.asked = div("svc-asked", make("div", {}, this.prompt));
    this.attached = div("svc-given");
    this.who = div("svc-who");
    this.toolRuns = div("svc-tool-runs");
    const does = { "svc-frame": ({ detail }) => this.askName(detail.box) };
    this.answer = make("div", { class: "svc-answer", ...does });
    this.dots = waitingDots();
    this.ended = span("svc-words");
    this.goOn = textButton("continue", () => this.send("continue"));
    this.goOn.ariaLabel = BUTTONS.continue.title;
    this.rest = div("svc-rest", this.ended, this.goOn);
    this.foot = div("svc-foot");
    const parts = [this.you, this.asked, this.attached, this.who, this.toolRuns, this.answer];
    parts.push(this.dots, this.rest, this.foot);
    this.element = make("article", { class: "svc-turn", tabindex: -1 }, ...parts);
    this.makeFoot();
  }

  send(t, more = {}) {
    this.panel.send(t, { turn: this.id, ...more });
  }

  askAgain() {
    this.panel.again = this;
    this.send("regenerate");
  }

  makeFoot() {
    const go = (to) => iconButton(to, () => this.send("choose", { version: this.turn[to] }));
    this.back = go("previous");
    this.forth = go("next");
    this.version = make("span");
    this.versions = group("svc-versions", "Versions");
    this.versions.append(this.back, this.version, this.forth);
    this.badges = span("svc-badges");
    this.words = span("svc-words");
    this.copy = copyButton(() => this.turn.choices[0]?.text ?? "");
    this.buttons = {};
    for (const name of TURN_BUTTONS) {
      const act = () => (name === "edit" ? this.edit() : this.askAgain());
      this.buttons[name] = iconButton(name, act);
      this.buttons[name].hidden = true;
    }
    this.more = iconButton("more", () => this.panel.menu.open(this, this.more));
    this.more.ariaHasPopup = "menu";
    const { edit, ...below } = this.buttons;
    edit.classList.add("svc-hovered");
    this.asked.append(edit);
    const actions = group("svc-actions svc-hovered", "Turn");
    actions.append(this.copy, ...Object.values(below), this.more);
    this.rest.hidden = true;
    this.foot.append(this.versions, this.badges, this.words, actions);
  }

  /** Draw the turn, or the reply that is being written in its place. */
  draw(kernelTurn, live, isIdle) {
    const isSame = kernelTurn === this.kernelTurn && !live && !this.wasLive;
    if (isSame && isIdle === this.wasIdle) return;
    const turn = isIdle ? kernelTurn : { ...kernelTurn, can: kernelTurn.can && [] };
    const isLive = Boolean(live) && !live.isEnded;
    Object.assign(this, { turn, kernelTurn, wasLive: Boolean(live), wasIdle: isIdle });
    if (isSame && !this.form && this.choices.length < 2) return this.drawFoot(turn, isIdle);
    this.element.ariaBusy = isLive;
    this.element.ariaLabel = `Turn ${turn.number}`;
    setText(this.you, `${turn.number} · You`); // as the history of the conversation has it
    this.element.classList.toggle("svc-faded", Boolean(turn.is_hidden || turn.is_stale));
    const { prompt = "", whole } = live?.prompt == null ? turn : live;
    setText(this.prompt, prompt);
    setText(this.wholeLine, whole ?? "");
    if (whole === "") this.whole.remove();
    else if (!this.whole.parentNode) this.prompt.after(this.whole); // perhaps not known yet
    this.prompt.hidden = !this.prompt.textContent;
    this.asked.hidden = Boolean(this.form);
    const attached = live?.attached ?? turn.attached ?? [];
    if (isNew(this, "attached", attached)) drawAttached(this.attached, attached);
    this.attached.hidden = this.form || !attached.length;
    setText(this.who, live?.model ?? turn.model ?? "");
    if (this.form) allow(this.ask, turn.can?.includes("edit"));
    this.drawToolRuns(live?.tool_runs ?? turn.tool_runs ?? [], live?.isEnded);
    this.columns = (live ?? turn).columns ?? [];
    this.drawChoices(live ? live.choices : turn.choices ?? [], live);
    const isAlone = !this.columns.length;
    this.dots.hidden = !isLive || !isAlone || this.choices.some((choice) => choice.box.textContent);
    this.foot.hidden = live || !turn.can;
    if (live) this.rest.hidden = true;
    if (!this.foot.hidden) this.drawFoot(turn, isIdle);
  }

  drawToolRuns(toolRuns, isEnded) {
    this.toolRuns.hidden = !toolRuns.length;
    if (!toolRuns.length || !isNew(this, "tool_runs", [toolRuns, isEnded])) return;
    const wasOpen = [...this.toolRuns.children].map((call) => call.open);
    const calls = toolRuns.map((call, at) => {
      const body = div("svc-blocks");
      setBlocks(body, call.html ?? "");
      const line = make("summary", {}, (isEnded && call.unanswered) || call.line || call.name);
      const kind = call.is_error ? "svc-call svc-failed" : "svc-call";
      return make("details", { class: kind, open: wasOpen[at] ? "" : null }, line, body);
    });
    this.toolRuns.replaceChildren(...calls);
  }

  drawChoices(choices, live) {
    if (live) this.seen.choices = null;
    else if (!isNew(this, "choices", [choices, this.columns, this.turn.can, this.turn.picked])) return;
    while (this.choices.length > choices.length) this.choices.pop().element.remove();
    choices.forEach((choice, at) => {
      const { blocks, tail } = this.choice(at);
      this.panel.typeset(setBlocks(blocks, choice.html ?? "", true));
      setTail(tail, (live && choice.tail) || "");
    });
    this.answer.classList.toggle("svc-several", choices.length > 1);
    this.choices.forEach((choice, at) => {
      choice.bar.hidden = choices.length < 2;
      setText(choice.number, `${at + 1} of ${choices.length}`);
      const isPicked = this.turn.picked === at;
      choice.pick.hidden = live || !(isPicked || this.turn.can?.includes("pick"));
      setText(choice.pick, isPicked ? "Picked" : BUTTONS.pick.label);
      choice.pick.ariaPressed = isPicked;
      choice.copy.hidden = Boolean(live);
      drawColumn(this.turn, choice, this.columns[at], live);
    });
  }

  /** Return the elements of a choice; the first call makes them. */
  choice(at) {
    while (this.choices.length <= at) {
      const index = this.choices.length;
      const number = span("svc-words");
      const copy = copyButton(() => this.turn.choices[index]?.text ?? "", "Copy this reply");
      const pick = textButton("pick", () => this.pick(index));
      const bar = div("svc-bar", number, copy, pick);
      const blocks = div("svc-blocks");
      const tail = div("svc-blocks svc-tail");
      const box = div("svc-text", blocks, tail);
      const element = div("svc-choice", bar, box);
      this.answer.append(element);
      const parts = columnParts(element);
      this.choices.push({ element, bar, number, copy, pick, box, blocks, tail, ...parts });
    }
    return this.choices[at];
  }

  /** Ask for the name of a table's DataFrame; there is one form at a time. */
  askName(box) {
    const choice = this.choices.findIndex(({ blocks }) => blocks.contains(box));
    const table = [...this.choices[choice].blocks.querySelectorAll(".svc-table")].indexOf(box.parentElement);
    this.frame?.close();
    this.frame = new FrameForm(this, box, { choice, table });
  }

  pick(at) {
    const { version } = this.columns[at] ?? {};
    if (version) this.send("prefer", { version });
    else this.send("pick", { choice: at });
  }

  /** Add a piece: draw new or changed blocks, and the unfinished tail every time. */
  grow(at, html, tail, nBack = 0) {
    if (at >= this.choices.length) return false;
    const choice = this.choices[at];
    for (let n = 0; n < nBack; n += 1) choice.blocks.lastElementChild?.remove();
    if (html) {
      const added = blocksOf(html).map((block) => built(block, false, true));
      choice.blocks.append(...added);
      this.panel.typeset(added);
    }
    setTail(choice.tail, tail);
    this.dots.hidden = true;
    return true;
  }

  drawFoot(turn, isIdle) {
    const can = turn.can ?? [];
    this.versions.hidden = !turn.version;
    setText(this.version, turn.version);
    allow(this.back, can.includes("choose") && turn.previous);
    allow(this.forth, can.includes("choose") && turn.next);
    const badges = [...(turn.badges ?? [])];
    for (const mark of ["pinned", "hidden", "stale"]) if (turn[`is_${mark}`]) badges.push(mark);
    if (isIdle) this.rest.hidden = !can.includes("continue");
    const isSaid = (word) => !this.rest.hidden && turn.ended.toLowerCase().startsWith(word);
    const words = [...new Set(badges)].filter((word) => !isSaid(word));
    if (isNew(this, "badges", words)) {
      const drawn = words.map((word) => {
        return make("span", { class: "svc-badge", title: word === "stale" && STALE }, word);
      });
      this.badges.replaceChildren(...drawn);
    }
    setText(this.words, turn.footer ?? "");
    this.words.title = turn.system ?? "";
    this.copy.hidden = turn.choices?.length !== 1 || !turn.choices[0].text;
    for (const name of TURN_BUTTONS) {
      const button = this.buttons[name];
      // buttons stay in place while a reply is written, so that nothing moves
      if (isIdle || can.includes(name)) button.hidden = !can.includes(name);
      allow(button, can.includes(name));
    }
    allow(this.goOn, can.includes("continue"));
    setText(this.ended, `${turn.ended}.`);
    const hasMenu = MENU_BUTTONS.some((name) => can.includes(name));
    if (isIdle || hasMenu) this.more.hidden = !hasMenu;
    allow(this.more, hasMenu);
  }

  /** Edit the prompt in place. */
  edit(text = this.turn.prompt ?? "", isFocused = true, chips = null) {
    if (this.form) return isFocused && this.area.focus();
    const does = { keydown: (event) => this.editKey(event), input: () => fit(this.area) };
    this.area = make("textarea", { "aria-label": "Edit the prompt", rows: 2, dir: "auto", ...does });
    this.area.value = text;
    this.chips = chips ?? (this.turn.attached ?? []).map((item) => ({ ...item, isKept: true }));
    this.attach = new AttachMenu(this.panel, this.area, this, () => this.attach?.draw());
    for (const { name } of this.chips) {
      if (!CELL_OR_ERROR.test(name)) this.panel.send("size", { name });
    }
    this.ask = textButton("resend", () => this.resend(), "svc-main");
    allow(this.ask, this.turn.can?.includes("edit"));
    const cancel = textButton("cancel", () => this.endEdit());
    const row = div("svc-row", this.ask, cancel);
    this.form = div("svc-editing", this.area, this.attach.element, row);
    this.asked.hidden = this.attached.hidden = true;
    this.asked.after(this.form);
    fit(this.area);
    if (isFocused) this.showEditor();
    this.area.setSelectionRange(this.area.value.length, this.area.value.length);
  }

  /** Show what an attached variable is now, which is what is sent; a cell stays as it was. */
  takeSize({ name, kind, n_tokens, problem }) {
    if (problem || CELL_OR_ERROR.test(name)) return;
    const now = (chip) => {
      const { was = chip.kind } = chip;
      return { ...chip, was, n_tokens, kind: kind === was ? kind : `${kind} now, ${was} before` };
    };
    this.attach.set(this.chips.map((chip) => (chip.name === name && chip.isKept ? now(chip) : chip)));
  }

  /** Scroll the editor into sight; of a long one, its end, where the cursor is. */
  showEditor() {
    const { log } = this.panel;
    this.area.focus({ preventScroll: true });
    this.panel.isAtEnd = false;
    const by = this.form.getBoundingClientRect().bottom - log.getBoundingClientRect().bottom;
    const above = this.form.getBoundingClientRect().top - log.getBoundingClientRect().top;
    if (by > 0 || above < 0) log.scrollTop += by > 0 ? by : above;
  }

  editKey(event) {
    if (isInput(event) || this.attach.key(event)) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      this.endEdit();
    } else if (isSendKey(event, this.panel.view)) {
      event.preventDefault();
      this.resend();
    }
  }

  resend() {
    const text = this.area.value;
    if (!text.trim()) return;
    if (this.panel.can("stop")) this.panel.tellBriefly(WAIT.replace(" (Esc)", "")); // it ends the edit
    if (!isAllowed(this.ask)) return;
    this.panel.again = this;
    this.panel.connection.drafts.sendEdit(this.id, text, this.chips);
    this.endEdit();
  }

  endEdit() {
    this.form.remove();
    this.attach.remove();
    this.form = null;
    this.asked.hidden = false;
    this.attached.hidden = !this.attached.childElementCount;
    this.panel.composer.focus();
  }
}

function setTail(tail, html) {
  const next = make("div");
  next.append(...blocksOf(html).map((block) => built(block, true)));
  become(tail, next);
}

/** Give an element the content of another one; what is the same stays, and stays selected. */
function become(element, next) {
  const old = [...element.childNodes];
  [...next.childNodes].forEach((node, at) => {
    const same = old[at];
    const isSame = same?.cloneNode().isEqualNode(node.cloneNode());
    if (isSame && node.nodeType === 1) become(same, node);
    else if (same?.nodeType === 3 && node.data?.startsWith(same.data)) same.appendData(node.data.slice(same.length));
    else if (same) same.replaceWith(node);
    else element.append(node);
  });
  for (const node of old.slice(next.childNodes.length)) node.remove();
}

/** The menu of a turn, one for all turns; it closes itself. */
class Menu {
  constructor(panel) {
    this.panel = panel;
    const toggle = ({ newState }) => this.button?.setAttribute("aria-expanded", newState === "open");
    const does = { keydown: (event) => this.key(event), toggle };
    this.element = make("div", { class: "svc-menu", role: "menu", popover: "auto", ...does });
  }

  open(turn, button) {
    const { can = [] } = turn.turn;
    const items = MENU_BUTTONS.filter((name) => can.includes(name)).map((name) => {
      const is = IS_ON[name];
      const act = () => {
        this.close();
        turn.send(name);
      };
      const role = is ? "menuitemcheckbox" : "menuitem";
      const state = is ? { "aria-checked": String(Boolean(turn.turn[is])) } : {};
      const item = make("button", { type: "button", role, tabindex: -1, click: act, ...state });
      item.append(icon(name), make("span", {}, BUTTONS[name].label));
      return item;
    });
    this.button = button;
    this.element.replaceChildren(...items);
    this.element.showPopover();
    const at = button.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const isAbove = at.bottom + height > innerHeight;
    this.element.style.left = `${Math.max(4, at.right - width)}px`;
    this.element.style.top = `${isAbove ? at.top - height : at.bottom}px`;
    items[0]?.focus();
    this.top_px = at.top;
  }

  /** Close after a scroll, but not after one that ended before the menu opened. */
  closeIfMoved() {
    if (this.button && this.button.getBoundingClientRect().top !== this.top_px) this.close();
  }

  close() {
    if (this.element.matches(":popover-open")) this.element.hidePopover();
  }

  key(event) {
    const items = [...this.element.children];
    const at = items.indexOf(document.activeElement);
    if (event.key === "Tab") this.close();
    if (event.key === "Escape") event.stopPropagation();
    const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: -1 }[event.key];
    if (to == null) return;
    event.preventDefault();
    items.at(to % items.length).focus();
  }
}

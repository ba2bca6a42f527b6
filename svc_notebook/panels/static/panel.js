/* The chat panel in the browser: draws the view that the kernel sends, and sends actions.
 *
 * The kernel decides which actions are allowed and renders Markdown to safe HTML. Text
 * reaches the page only through `make` (as text) or `blocksOf` (HTML, rebuilt from a list
 * of allowed elements). Nothing is loaded from the network, and only what has changed is
 * drawn again. A new button is an entry in `ICONS` and `ACTIONS`, or in `makeTop`, and a
 * row in panels/actions.py.
 */

const HELLO_EVERY_MS = 400;
const N_HELLOS = 8;
const GAP_MS = 500;
const NEAR_END_PX = 16;
const QUIET_KEYS = "data-lm-suppress-shortcuts";
const RESTARTED = "The kernel restarted; run the cell again.";
const LATE_STOP = "Stop works after the running cell.";
const NO_ANSWER = "No answer yet: the kernel is busy, or the cell has to be run again.";

/* ---- Elements ---- */

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  send: "M8 13V3M3.5 7.5 8 3l4.5 4.5",
  stop: "M4.5 4.5h7v7h-7z",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  done: "M3 8.5 6.5 12 13 4.5",
  regenerate: "M13.2 2.8v3.7H9.5M13 6.2A5.3 5.3 0 1 0 13.2 9.6",
  edit: "M3 13l.7-2.9L10.8 3 13 5.2 5.9 12.3zM9.4 4.4l2.2 2.2",
  continue: "M4 3.5v9L10.5 8zM12.8 3.5v9",
  delete: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9M6.9 7v4M9.1 7v4",
  pin: "M5.8 2.5h4.4l-.6 4L12 9H4l2.4-2.5zM8 9v4.5",
  hide: "M1.5 8S4 3.8 8 3.8 14.5 8 14.5 8 12 12.2 8 12.2 1.5 8 1.5 8zM3 13 13 3",
  undo: "M6 3 3 6l3 3M3 6h6.5a3.5 3.5 0 0 1 0 7H6",
  clear: "M6 13.2h7.5M2.8 9.4l5.8-5.8 4.2 4.2-5.4 5.4H6zM5.6 6.6l4.2 4.2",
  previous: "M10 3.5 5.5 8l4.5 4.5",
  next: "M6 3.5 10.5 8 6 12.5",
  down: "M8 3v10M3.5 8.5 8 13l4.5-4.5",
  close: "M4 4l8 8M12 4l-8 8",
};

/** Make an element; strings among the children become text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** Make an icon; the button around it has the label. */
function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Make an icon button; while it is not allowed it keeps the focus but does nothing. */
function iconButton(name, label, act) {
  const click = (event) => isAllowed(button) && act(event);
  const button = make("button", { type: "button", class: `svc-icon svc-${name}`, click });
  button.append(icon(name));
  return named(button, label);
}

function textButton(label, act, kind = "") {
  const click = (event) => isAllowed(button) && act(event);
  const button = make("button", { type: "button", class: `svc-button ${kind}`, click }, label);
  return button;
}

function group(kind, label) {
  return make("span", { class: kind, role: "group", "aria-label": label });
}

function named(button, label) {
  button.setAttribute("aria-label", label);
  button.title = label;
  return button;
}

function allow(button, isIt) {
  button.setAttribute("aria-disabled", String(!isIt));
}

function isAllowed(button) {
  return button.getAttribute("aria-disabled") !== "true";
}

/** Set text only if it differs, so that a selection in it is kept. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Return whether a value differs from the last one with this name. */
function isNew(seen, name, value) {
  const text = JSON.stringify(value) ?? "";
  if (seen[name] === text) return false;
  seen[name] = text;
  return true;
}

/** Make a button that copies a text and briefly confirms it. */
function copyButton(label, text) {
  let timer = 0;
  const button = iconButton("copy", label, async () => {
    await copyText(text());
    show("done", "Copied");
    clearTimeout(timer);
    timer = setTimeout(() => show("copy", label), 1500);
  });
  const show = (name, words) => {
    button.replaceChildren(icon(name));
    named(button, words);
  };
  return button;
}

/** Copy with the clipboard, or with a selection if the page may not use it. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const focused = document.activeElement;
    const area = make("textarea", { class: "svc-unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    focused?.focus({ preventScroll: true });
  }
}

/* ---- HTML from the kernel ---- */

const HTML = "http://www.w3.org/1999/xhtml";
const ALLOWED = new Set(
  ("a b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i li ol p pre " +
    "s small span strong sub summary sup table tbody td th thead tr ul").split(" "),
);
const LEFT_OUT = new Set(
  ("applet audio base button embed form frame frameset iframe img input link math meta " +
    "noscript object picture script select source style template textarea title video").split(" "),
);
const LINK = /^(?:https?:\/\/[^/\\]|mailto:|#)/i;
const CLASS = /^(?:highlight|[a-z]{1,2}\d?)$/; // the classes of coloured code
const sources = new WeakMap();

/** Parse HTML in a document where nothing runs or loads, and rebuild its blocks. */
function blocksOf(html) {
  const inert = new DOMParser().parseFromString(html, "text/html").body;
  return [...inert.childNodes]
    .filter((node) => node.nodeType === 1 || node.textContent.trim())
    .map((node) => ({ source: node.outerHTML ?? node.textContent, node }));
}

function built({ source, node }, isGrowing) {
  const copy = rebuilt(node, isGrowing);
  const block = copy?.nodeType === 1 ? copy : make("div", {}, copy);
  sources.set(block, source);
  return block;
}

/** Copy a node with allowed elements and attributes; null if it is not allowed. */
function rebuilt(node, isGrowing) {
  if (node.nodeType === 3) return document.createTextNode(node.data);
  if (node.nodeType !== 1 || node.namespaceURI !== HTML) return null;
  const tag = node.localName;
  if (LEFT_OUT.has(tag)) return null;
  const copy = ALLOWED.has(tag) ? make(tag) : document.createDocumentFragment();
  if (copy.nodeType === 1) copyAttributes(node, copy);
  for (const child of node.childNodes) copy.append(rebuilt(child, isGrowing) ?? "");
  return tag === "pre" && !isGrowing ? withCopy(copy) : copy;
}

function copyAttributes(node, copy) {
  const classes = [...node.classList].filter((name) => CLASS.test(name));
  const style = node.getAttribute("style") ?? "";
  const side = /text-align:\s*(left|right|center)/.exec(style);
  if (side) classes.push(`svc-${side[1]}`);
  if (/margin-bottom:\s*-1em/.test(style)) classes.push("svc-joined");
  if (classes.length) copy.className = classes.join(" ");
  const href = node.getAttribute("href") ?? "";
  if (copy.localName === "a" && LINK.test(href)) {
    copy.setAttribute("href", href);
    if (!href.startsWith("#")) copy.setAttribute("target", "_blank");
    copy.setAttribute("rel", "noopener noreferrer");
  }
  const start = node.getAttribute("start") ?? "";
  if (copy.localName === "ol" && /^\d{1,9}$/.test(start)) copy.setAttribute("start", start);
}

function withCopy(pre) {
  pre.tabIndex = 0; // so that the keyboard can scroll long lines
  return make("div", { class: "svc-code" }, pre, copyButton("Copy code", () => pre.textContent));
}

/** Show HTML in a box; blocks that have not changed keep their elements. */
function setBlocks(box, html) {
  const added = [];
  let old = box.firstElementChild;
  for (const block of blocksOf(html)) {
    let found = old;
    while (found && sources.get(found) !== block.source) found = found.nextElementSibling;
    if (found) {
      while (old !== found) old = dropped(old);
      old = old.nextElementSibling;
    } else {
      added.push(built(block));
      box.insertBefore(added.at(-1), old);
    }
  }
  while (old) old = dropped(old);
  return added;
}

function dropped(element) {
  const next = element.nextElementSibling;
  element.remove();
  return next;
}

/* ---- The connection to the kernel, shared by all views of a panel ---- */

class Line {
  constructor(model) {
    this.model = model;
    this.views = new Set();
    this.view = this.whole(model.get("view") ?? {});
    this.live = this.view.live ?? null;
    this.draft = "";
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
    model.on("comm_live_update", () => this.send({ t: "hello" }));
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
      this.giveBack();
      this.say(RESTARTED);
      this.draw();
      return false;
    }
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
    this.send({ t: "hello" });
    this.timer = setTimeout(() => this.hello(), HELLO_EVERY_MS);
  }

  get hint() {
    if (this.isDead || this.isSubshelled || this.nHellos < N_HELLOS) return "";
    return this.hasAnswer ? LATE_STOP : NO_ANSWER;
  }

  sendPrompt(text) {
    this.pending = { text, nTurns: this.view.turns?.length ?? 0 };
    this.draft = "";
    this.send({ t: "send", text });
    this.draw();
  }

  sendEdit(turn, text) {
    const { n_versions: nVersions } = this.turnOf(turn) ?? {};
    this.edited = { turn, text, nVersions, isHeard: false };
    this.send({ t: "edit", turn, text });
  }

  /** Open the edited prompt again if it got no answer, so that it is not lost. */
  settleEdit() {
    const { turn, text, nVersions } = this.edited;
    const found = this.turnOf(turn);
    this.edited = null;
    if (found?.n_versions > nVersions) return;
    if (!found) this.keep(text);
    else for (const view of this.views) view.turns.get(turn)?.edit(text, view.isWaiting());
  }

  turnOf(id) {
    return (this.view.turns ?? []).find((turn) => turn.id === id);
  }

  /** Put a prompt that the kernel refused back into the composer. */
  giveBack(text = this.pending?.text) {
    this.keep(text);
    this.pending = null;
  }

  keep(text) {
    this.draft = [text, this.draft].filter(Boolean).join("\n");
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
    const isLost = view.nth > last + 1 || whole.turns.length < view.order?.length;
    if (isLost && !view.is_whole) this.send({ t: "hello" });
    this.takeView(whole);
    this.takeEarly();
  }

  /** Complete a view with the turns that have not changed. */
  whole(view) {
    const { order = [], turns: news = [], nth = 0 } = view;
    this.nth = nth;
    const known = { ...this.model.get("turns") };
    for (const turn of news) known[turn.id] = turn;
    const turns = order.map((id) => known[id]).filter(Boolean);
    // so that saved widget state has all turns
    this.model.set("turns", Object.fromEntries(turns.map((turn) => [turn.id, turn])));
    return { ...view, turns };
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
    if (this.early.size) this.gap = setTimeout(() => this.send({ t: "hello" }), GAP_MS);
  }

  take(message) {
    const { t } = message;
    if (t === "delta") return this.takeDelta(message);
    if (t === "ack") this.takeAck(message);
    else if (t === "live") this.takeLive(message.live);
    else if (t === "status") this.status = message.text ? message : null;
    else if (t === "ended") this.takeEnd(message);
    else if (t === "problem") this.takeProblem(message);
    else if (t === "heard") this.takeHeard(message);
    else if (t === "resync") this.send({ t: "hello" });
    this.draw();
  }

  takeAck({ subshell }) {
    this.hasAnswer = true;
    this.isSubshelled = Boolean(subshell);
    if (this.isSubshelled) clearTimeout(this.timer);
  }

  takeLive(live) {
    if (live && !this.live) this.say("Reply started");
    this.live = live;
    this.pending = null;
  }

  takeDelta({ choice = 0, html = "", tail = "" }) {
    if (!this.live) return this.send({ t: "hello" });
    const choices = this.live.choices;
    while (choices.length <= choice) choices.push({ html: "", tail: "" });
    choices[choice].html += html;
    choices[choice].tail = tail;
    this.live.status = "";
    this.status = null;
    for (const view of this.views) view.grow(choice, html, tail);
  }

  takeEnd({ text }) {
    this.status = null;
    if (this.live) this.live.isEnded = true;
    this.say(text ?? "");
  }

  takeProblem({ text }) {
    this.problems.push(text);
    this.say(text);
  }

  /** The kernel has handled a message; a prompt that is still pending was refused. */
  takeHeard({ kind }) {
    const isIdle = this.view.state === "idle";
    if (kind === "send" && isIdle) this.giveBack();
    if (kind === "edit" && this.edited) this.edited.isHeard = true;
    if (isIdle && this.edited?.isHeard) this.settleEdit();
    for (const view of this.views) view.settings.heard(kind, this.view);
  }

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
    if (state === "idle" && isLost) this.giveBack(under.prompt);
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

/* ---- One turn ---- */

const ACTIONS = [
  ["continue", "Continue the reply"],
  ["regenerate", "Ask again"],
  ["edit", "Edit the prompt and ask again"],
  ["pin", "Pin: always send this turn"],
  ["hide", "Hide: do not send this turn"],
  ["delete", "Delete this turn"],
];

class Turn {
  constructor(panel, id) {
    this.panel = panel;
    this.id = id;
    this.seen = {};
    this.choices = [];
    this.prompt = make("div", { class: "svc-prompt" });
    this.toolRuns = make("details", { class: "svc-tool-runs" });
    this.answer = make("div", { class: "svc-answer" });
    this.dots = make("div", { class: "svc-dots", "aria-hidden": "true" });
    this.dots.append(make("i"), make("i"), make("i"));
    this.foot = make("div", { class: "svc-foot" });
    this.element = make("article", { class: "svc-turn" });
    this.element.append(this.prompt, this.toolRuns, this.answer, this.dots, this.foot);
    this.makeFoot();
  }

  send(t, more = {}) {
    this.panel.line.send({ t, turn: this.id, ...more });
  }

  makeFoot() {
    const go = (by) => this.send("choose", { version: this.turn.version + by });
    this.back = iconButton("previous", "Previous version", () => go(-1));
    this.forth = iconButton("next", "Next version", () => go(1));
    this.version = make("span");
    this.versions = group("svc-versions", "Versions");
    this.versions.append(this.back, this.version, this.forth);
    this.badges = make("span", { class: "svc-badges" });
    this.words = make("span", { class: "svc-words" });
    this.copy = copyButton("Copy the reply", () => this.turn.choices[0]?.text ?? "");
    this.buttons = {};
    for (const [name, label] of ACTIONS) {
      const act = () => (name === "edit" ? this.edit() : this.send(name));
      this.buttons[name] = iconButton(name, label, act);
      this.buttons[name].hidden = true;
    }
    const actions = group("svc-actions", "Turn");
    actions.append(this.copy, ...Object.values(this.buttons));
    this.foot.append(this.versions, this.badges, this.words, actions);
  }

  /** Draw the turn, or the reply that is being written in its place. */
  draw(kernelTurn, live, isIdle) {
    const turn = isIdle ? kernelTurn : { ...kernelTurn, can: kernelTurn.can && [] };
    const isLive = Boolean(live) && !live.isEnded;
    if (!live && !isNew(this.seen, "all", [turn, isIdle])) return;
    if (live) this.seen.all = null;
    this.turn = turn;
    this.element.setAttribute("aria-busy", String(isLive));
    this.element.setAttribute("aria-label", `Turn ${turn.number ?? ""}`.trim());
    this.element.classList.toggle("svc-faded", Boolean(turn.is_hidden || turn.is_stale));
    setText(this.prompt, live?.prompt ?? turn.prompt ?? "");
    this.prompt.hidden = Boolean(this.form) || !this.prompt.textContent;
    if (this.form) allow(this.ask, Boolean(turn.can?.includes("edit")));
    this.drawToolRuns(live?.tool_runs ?? turn.tool_runs ?? []);
    this.drawChoices(live ? live.choices : turn.choices ?? [], live);
    this.dots.hidden = !isLive || this.choices.some((choice) => choice.box.textContent);
    this.foot.hidden = Boolean(live) || !turn.can;
    if (!this.foot.hidden) this.drawFoot(turn, isIdle);
  }

  drawToolRuns(toolRuns) {
    this.toolRuns.hidden = !toolRuns.length;
    if (!toolRuns.length || !isNew(this.seen, "tool_runs", toolRuns)) return;
    const names = toolRuns.map((call) => call.name).join(", ");
    const count = toolRuns.length === 1 ? "1 tool call" : `${toolRuns.length} tool calls`;
    const calls = toolRuns.map((call) => {
      const body = make("div", { class: "svc-blocks" });
      setBlocks(body, call.html ?? "");
      const name = make("strong", {}, call.is_error ? `${call.name}: failed` : call.name);
      return make("div", { class: call.is_error ? "svc-call svc-failed" : "svc-call" }, name, body);
    });
    this.toolRuns.replaceChildren(make("summary", {}, `${count}: ${names}`), ...calls);
  }

  drawChoices(choices, live) {
    if (live) this.seen.choices = null;
    else if (!isNew(this.seen, "choices", [choices, this.turn.can, this.turn.picked])) return;
    while (this.choices.length > choices.length) this.choices.pop().element.remove();
    choices.forEach((choice, at) => {
      const { blocks, tail } = this.choice(at);
      this.panel.typeset(setBlocks(blocks, choice.html ?? ""));
      setTail(tail, (live && choice.tail) || "");
    });
    this.answer.classList.toggle("svc-several", choices.length > 1);
    this.choices.forEach((choice, at) => {
      choice.bar.hidden = choices.length < 2;
      setText(choice.number, `${at + 1} of ${choices.length}`);
      const isPicked = this.turn.picked === at;
      choice.pick.hidden = Boolean(live) || !(isPicked || this.turn.can?.includes("pick"));
      setText(choice.pick, isPicked ? "Picked" : "Pick");
      choice.pick.setAttribute("aria-pressed", String(isPicked));
      choice.copy.hidden = Boolean(live);
    });
  }

  /** Return the elements of a choice; makes them at first. */
  choice(at) {
    while (this.choices.length <= at) {
      const index = this.choices.length;
      const number = make("span", { class: "svc-words" });
      const copy = copyButton("Copy this reply", () => this.turn.choices[index]?.text ?? "");
      const pick = textButton("Pick", () => this.send("pick", { choice: index }));
      pick.title = "Later turns go on from the reply that is picked";
      const bar = make("div", { class: "svc-bar" }, number, copy, pick);
      const blocks = make("div", { class: "svc-blocks" });
      const tail = make("div", { class: "svc-blocks svc-tail" });
      const box = make("div", { class: "svc-text" }, blocks, tail);
      const element = make("div", { class: "svc-choice" }, bar, box);
      this.answer.append(element);
      this.choices.push({ element, bar, number, copy, pick, box, blocks, tail });
    }
    return this.choices[at];
  }

  /** Add a piece: finished blocks are drawn once, the tail each time. */
  grow(at, html, tail) {
    if (at >= this.choices.length) return false;
    const choice = this.choices[at];
    if (html) {
      const added = blocksOf(html).map((block) => built(block));
      choice.blocks.append(...added);
      this.panel.typeset(added);
    }
    setTail(choice.tail, tail);
    this.dots.hidden = true;
    return true;
  }

  drawFoot(turn, isIdle) {
    const can = turn.can ?? [];
    const several = turn.n_versions > 1;
    this.versions.hidden = !several;
    setText(this.version, `${turn.version}/${turn.n_versions}`);
    allow(this.back, can.includes("choose") && turn.version > 1);
    allow(this.forth, can.includes("choose") && turn.version < turn.n_versions);
    const badges = [...(turn.badges ?? [])];
    if (turn.is_pinned) badges.push("pinned");
    if (turn.is_hidden) badges.push("hidden");
    if (turn.is_stale) badges.push("stale");
    const words = [...new Set(badges)];
    if (isNew(this.seen, "badges", words)) {
      const drawn = words.map((word) => make("span", { class: "svc-badge" }, word));
      this.badges.replaceChildren(...drawn);
    }
    setText(this.words, turn.footer ?? "");
    this.copy.hidden = turn.choices?.length !== 1 || !turn.choices[0].text;
    for (const [name] of ACTIONS) {
      const button = this.buttons[name];
      // buttons stay in place while a reply is written, so that nothing moves
      if (isIdle || can.includes(name)) button.hidden = !can.includes(name);
      allow(button, can.includes(name));
    }
    this.buttons.pin.setAttribute("aria-pressed", String(Boolean(turn.is_pinned)));
    this.buttons.hide.setAttribute("aria-pressed", String(Boolean(turn.is_hidden)));
  }

  /** Edit the prompt in place. */
  edit(text = this.turn.prompt ?? "", isFocused = true) {
    if (this.form) return isFocused && this.area.focus();
    this.area = make("textarea", { "aria-label": "Edit the prompt", rows: 2 });
    this.area.value = text;
    this.area.addEventListener("keydown", (event) => this.editKey(event));
    this.area.addEventListener("input", () => fit(this.area));
    this.ask = textButton("Ask again", () => this.resend(), "svc-main");
    allow(this.ask, Boolean(this.turn.can?.includes("edit")));
    const cancel = textButton("Cancel", () => this.endEdit());
    const row = make("div", { class: "svc-row" }, this.ask, cancel);
    this.form = make("div", { class: "svc-editing" }, this.area, row);
    this.prompt.hidden = true;
    this.prompt.after(this.form);
    fit(this.area);
    if (isFocused) this.area.focus({ preventScroll: true });
    this.area.setSelectionRange(this.area.value.length, this.area.value.length);
  }

  editKey(event) {
    if (isInput(event)) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      this.endEdit();
    } else if (this.panel.isSendKey(event)) {
      event.preventDefault();
      this.resend();
    }
  }

  resend() {
    const text = this.area.value;
    if (!text.trim() || !isAllowed(this.ask)) return;
    this.panel.line.sendEdit(this.id, text);
    this.endEdit();
  }

  endEdit() {
    this.form.remove();
    this.form = null;
    this.prompt.hidden = false;
    this.panel.composer.focus({ preventScroll: true });
  }
}

function setTail(tail, html) {
  tail.replaceChildren(...(html ? blocksOf(html).map((block) => built(block, true)) : []));
}

/** Fit the height of a text area to its text. */
function fit(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}

/** Insert a line break, since JupyterLab handles Enter in a cell. */
function breakLine(event) {
  event.preventDefault();
  if (document.execCommand("insertText", false, "\n")) return;
  const area = event.target;
  area.setRangeText("\n", area.selectionStart, area.selectionEnd, "end");
  area.dispatchEvent(new Event("input", { bubbles: true }));
}

/** Return undo or redo for its key, since JupyterLab handles that key for cells. */
function undoStep({ key, ctrlKey, metaKey, altKey, shiftKey }) {
  if (!(ctrlKey || metaKey) || altKey) return "";
  if (key.toLowerCase() === "z") return shiftKey ? "redo" : "undo";
  return key === "y" ? "redo" : "";
}

/** Return whether a key belongs to an input method that composes characters. */
function isInput(event) {
  return event.isComposing || event.keyCode === 229;
}

/* ---- Settings ---- */

class Settings {
  constructor(panel) {
    this.panel = panel;
    this.seen = {};
    this.controls = {};
    this.refusals = {};
    this.asked = []; // fields whose change the kernel has not handled yet
    this.refusal = "";
    this.grid = make("div", { class: "svc-grid" });
    this.enter = make("input", { type: "checkbox", change: () => this.setEnter() });
    const words = "Enter sends, Shift+Enter breaks the line";
    const enter = make("label", { class: "svc-check" }, this.enter, words);
    const toggle = () => panel.drawNotices();
    this.element = make("details", { toggle }, make("summary", {}, "Settings"), this.grid, enter);
  }

  /** Return whether the error is visible at its field. */
  isSaying({ notice, is_problem: isProblem }) {
    if (!this.element.open || !isProblem) return false;
    return this.asked.length > 0 || this.refusal === notice;
  }

  /** Show the kernel's values again, and an error at the field that was refused. */
  heard(kind, { notice, is_problem: isProblem }) {
    this.forget();
    const name = kind === "set" ? this.asked.shift() : null;
    if (!name || !this.controls[name]) return;
    this.refusal = isProblem ? notice : "";
    this.refusals[name].hidden = !this.refusal;
    setText(this.refusals[name], this.refusal);
    if (this.refusal) this.controls[name].setAttribute("aria-invalid", "true");
    else this.controls[name].removeAttribute("aria-invalid");
  }

  /** Forget what was drawn, except in the field that is being edited. */
  forget() {
    for (const [name, control] of Object.entries(this.controls)) {
      if (control !== document.activeElement) delete this.seen[name];
    }
  }

  setEnter() {
    this.panel.line.send({ t: "enter", on: this.enter.checked });
  }

  draw({ fields = [], settings = {}, send_on_enter: isOn = true }, isAlive) {
    if (isNew(this.seen, "fields", fields)) this.makeFields(fields);
    this.enter.checked = isOn;
    this.enter.disabled = !isAlive;
    for (const field of fields) {
      const control = this.controls[field.name];
      control.disabled = !isAlive;
      const value = settings[field.name];
      if (isNew(this.seen, field.name, value)) setValue(control, value);
    }
  }

  makeFields(fields) {
    this.controls = {};
    const boxes = fields.map((field) => {
      const control = controlOf(field);
      control.id = `${this.panel.id}-${field.name}`;
      control.addEventListener("change", () => this.change(field, control));
      this.controls[field.name] = control;
      delete this.seen[field.name];
      const label = make("label", { for: control.id }, field.label ?? field.name);
      const help = make("small", { id: `${control.id}-help` }, field.help ?? "");
      const refusal = make("small", { id: `${control.id}-refusal`, class: "svc-refusal" });
      refusal.hidden = true;
      this.refusals[field.name] = refusal;
      control.setAttribute("aria-describedby", `${refusal.id} ${help.id}`);
      const parts = [label, control, refusal, help];
      return make("div", { class: `svc-field svc-kind-${field.kind}` }, ...parts);
    });
    const isLong = (box) => box.classList.contains("svc-kind-longtext");
    this.grid.replaceChildren(...boxes.filter((box) => !isLong(box)), ...boxes.filter(isLong));
  }

  change(field, control) {
    if (control.value === OTHER) return this.askOther(field, control);
    this.asked.push(field.name);
    this.panel.line.send({ t: "set", name: field.name, value: valueOf(field, control) });
  }

  /** Allow typing a name that is not in the list; the list comes back afterwards. */
  askOther(field, select) {
    const described = { "aria-describedby": select.getAttribute("aria-describedby") };
    const typed = make("input", { type: "text", id: select.id, autocomplete: "off", ...described });
    typed.addEventListener("keydown", (event) => {
      if (isInput(event) || !["Enter", "Escape"].includes(event.key)) return;
      event.stopPropagation();
      if (event.key === "Escape") typed.value = "";
      typed.blur();
      select.focus();
    });
    typed.addEventListener("change", () => typed.value.trim() && this.change(field, typed));
    typed.addEventListener("blur", () => {
      this.controls[field.name] = select;
      typed.replaceWith(select);
      setValue(select, this.panel.line.view.settings?.[field.name]);
    });
    this.controls[field.name] = typed;
    select.replaceWith(typed);
    typed.focus();
  }
}

const OTHER = "\u0000other";

function controlOf(field) {
  const { kind, options, minimum, maximum, step, default: usual } = field;
  if (kind === "choice") return selectOf(options ?? [], usual, field.name === "model");
  if (kind === "flag") return make("input", { type: "checkbox" });
  if (kind === "longtext") return make("textarea", { rows: 2, placeholder: usual ?? "" });
  const isNumber = (kind === "number" || kind === "integer") && !options;
  const type = isNumber ? "number" : "text";
  const by = step ?? (kind === "integer" ? 1 : "any");
  const range = isNumber ? { min: minimum, max: maximum, step: by } : {};
  return make("input", { type, placeholder: usual ?? "", autocomplete: "off", ...range });
}

function selectOf(options, usual, isOpen) {
  const select = make("select");
  if (usual != null && !options.includes(usual)) {
    select.append(make("option", { value: "" }, `${usual}`));
  }
  select.append(...options.map((option) => make("option", { value: option }, `${option}`)));
  if (isOpen) select.append(make("option", { value: OTHER }, "another …"));
  return select;
}

function setValue(control, value) {
  if (control.type === "checkbox") control.checked = Boolean(value);
  else control.value = value ?? "";
  if (control.localName === "select" && value != null && control.value !== `${value}`) {
    control.prepend(make("option", { value }, `${value}`));
    control.value = value;
  }
}

function valueOf({ kind }, control) {
  if (kind === "flag") return control.checked;
  if (control.validity?.badInput) return "?"; // the kernel returns the error
  if (control.value === "") return null;
  return control.type === "number" ? Number(control.value) : control.value;
}

/* ---- A view ---- */

let nPanels = 0;

class Panel {
  constructor(line, host) {
    this.line = line;
    this.id = `svc-${(nPanels += 1)}`;
    this.turns = new Map();
    this.seen = {};
    this.isAtEnd = true;
    this.untypeset = [];
    this.makeTop();
    this.makeLog();
    this.makeComposer();
    this.settings = new Settings(this);
    this.card = make("div", { class: "svc-card", role: "group", hidden: "" });
    this.notices = make("div", { class: "svc-notices" });
    this.spoken = make("div", { class: "svc-unseen", role: "status", "aria-live": "polite" });
    this.root = make("section", { class: "svc-panel", [QUIET_KEYS]: "true" });
    // the notebook's shortcuts look at a button before its parents
    this.root.addEventListener("focusin", ({ target }) => target.setAttribute(QUIET_KEYS, "true"));
    const parts = [this.top, this.middle, this.card, this.notices, this.form];
    this.root.append(...parts, this.spoken);
    this.form.append(make("div", { class: "svc-below" }, this.under, this.settings.element));
    this.root.addEventListener("keydown", (event) => this.key(event));
    host.append(this.root);
    this.sizes = new ResizeObserver(() => this.settle());
    this.sizes.observe(this.log);
    this.clock = setInterval(() => this.drawStatus(), 500);
    this.gone = new AbortController();
    const { signal } = this.gone;
    const ask = () => document.hidden || line.send({ t: "hello" }); // to get what was missed
    window.addEventListener("online", ask, { signal });
    document.addEventListener("visibilitychange", ask, { signal });
    line.join(this);
    this.draw();
  }

  remove() {
    this.line.leave(this);
    this.sizes.disconnect();
    this.gone.abort();
    clearInterval(this.clock);
    this.root.remove();
  }

  makeTop() {
    this.label = make("strong", { class: "svc-label" });
    this.model = make("span", { class: "svc-model" });
    this.level = make("span", { class: "svc-level" });
    const is = { role: "meter", "aria-label": "Tokens", "aria-valuemin": 0 };
    this.meter = make("span", { class: "svc-meter", ...is }, this.level);
    this.budget = make("span", { class: "svc-budget" });
    const send = (t) => () => this.line.send({ t });
    this.undo = iconButton("undo", "Undo the last change", send("undo"));
    this.clear = iconButton("clear", "Clear the conversation", send("clear"));
    this.top = make("div", { class: "svc-top" }, this.label, this.model, this.meter);
    this.top.append(this.budget, this.undo, this.clear);
  }

  makeLog() {
    const is = { role: "log", "aria-live": "off", "aria-label": "Transcript", tabindex: 0 };
    this.log = make("div", { class: "svc-log", ...is });
    this.empty = make("p", { class: "svc-empty" }, "Nothing has been said yet.");
    this.log.append(this.empty);
    this.log.addEventListener("scroll", () => this.scrolled());
    this.jump = iconButton("down", "Jump to the latest", () => this.toEnd());
    this.jump.hidden = true;
    this.middle = make("div", { class: "svc-middle" }, this.log, this.jump);
  }

  makeComposer() {
    this.composer = make("textarea", { rows: 1, "aria-label": "Message" });
    this.composer.addEventListener("keydown", (event) => this.composerKey(event));
    this.composer.addEventListener("input", () => this.typed());
    this.sendButton = iconButton("send", "Send", () => this.submit());
    this.stopButton = iconButton("stop", "Stop", () => this.stop());
    this.status = make("span", { class: "svc-status" });
    this.hint = make("span", { class: "svc-hint" });
    const box = make("div", { class: "svc-composer" }, this.composer);
    box.append(this.sendButton, this.stopButton);
    this.under = make("div", { class: "svc-under" }, this.status, this.hint);
    this.form = make("div", { class: "svc-form" }, box);
  }

  /* -- input -- */

  key(event) {
    if (isInput(event) || event.defaultPrevented) return;
    if (event.key === "Escape" && this.can("stop")) this.stop();
    if (event.target.localName !== "textarea") return;
    if (event.key === "Enter") breakLine(event);
    const step = undoStep(event);
    if (step && document.execCommand(step)) event.preventDefault();
  }

  composerKey(event) {
    if (isInput(event)) return;
    const isPlain = !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey;
    if (this.isSendKey(event)) {
      event.preventDefault();
      this.submit();
    } else if (event.key === "ArrowUp" && isPlain && !this.composer.value) {
      event.preventDefault();
      this.editLast();
    }
  }

  isSendKey(event) {
    if (event.key !== "Enter" || event.altKey) return false;
    if (event.ctrlKey || event.metaKey) return true;
    return event.shiftKey !== (this.line.view.send_on_enter ?? true);
  }

  typed() {
    this.line.draft = this.composer.value;
    fit(this.composer);
    for (const view of this.line.views) if (view !== this) view.drawDraft();
    this.drawButtons();
  }

  submit() {
    if (!isAllowed(this.sendButton) || !this.composer.value.trim()) return;
    this.isAtEnd = true;
    this.composer.focus({ preventScroll: true });
    this.line.sendPrompt(this.composer.value);
  }

  stop() {
    this.composer.focus({ preventScroll: true });
    this.line.send({ t: "stop" });
  }

  editLast() {
    const turns = this.line.view.turns ?? [];
    const last = turns.findLast((turn) => turn.can?.includes("edit"));
    if (last && this.isIdle) this.turns.get(last.id)?.edit();
  }

  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.log;
    this.isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    this.jump.hidden = this.isAtEnd;
  }

  toEnd() {
    this.isAtEnd = true;
    this.log.focus({ preventScroll: true });
    this.settle();
  }

  /** Return whether the empty composer has the focus. */
  isWaiting() {
    return document.activeElement === this.composer && !this.composer.value;
  }

  /* -- drawing -- */

  get isIdle() {
    return this.line.view.state === "idle" && !this.line.isDead;
  }

  can(name) {
    return !this.line.isDead && Boolean(this.line.view.can?.includes(name));
  }

  /** Draw what has changed; the focus and the scroll position stay. */
  draw() {
    const hadFocus = this.root.contains(document.activeElement);
    this.root.classList.toggle("svc-dead", this.line.isDead);
    this.drawTop();
    this.drawTurns();
    this.drawCard();
    this.drawNotices();
    this.drawDraft();
    this.drawButtons();
    this.drawStatus();
    this.settings.draw(this.line.view, !this.line.isDead);
    this.settle();
    const focused = document.activeElement;
    const isLost = !this.root.contains(focused) || focused.closest("[hidden]");
    if (hadFocus && isLost) this.composer.focus({ preventScroll: true });
  }

  drawTop() {
    const { label, name, meter, settings } = this.line.view;
    const title = label || `Conversation ${name ?? ""}`;
    this.root.setAttribute("aria-label", title);
    setText(this.label, title);
    setText(this.model, settings?.model ?? "");
    this.meter.hidden = this.budget.hidden = !meter;
    if (meter) {
      const part = Math.min(1, meter.used_tokens / Math.max(1, meter.budget_tokens));
      this.level.style.width = `${100 * part}%`;
      this.meter.classList.toggle("svc-full", part > 0.85);
      this.meter.setAttribute("aria-valuenow", meter.used_tokens);
      this.meter.setAttribute("aria-valuemax", meter.budget_tokens);
      this.meter.setAttribute("aria-valuetext", meter.text);
      setText(this.budget, meter.text);
    }
    for (const name of ["undo", "clear"]) allow(this[name], this.can(name));
  }

  drawTurns() {
    const { turns = [] } = this.line.view;
    const { live, pending } = this.line;
    this.adoptNew(turns);
    const shown = turns.map((turn) => [turn, live?.turn === turn.id ? live : null]);
    const isNewTurn = live ? live.turn === "new" || !shown.some((pair) => pair[1]) : pending;
    const prompt = live?.prompt ?? pending?.text;
    if (isNewTurn) shown.push([{ id: "new", prompt, choices: [] }, live]);
    const ids = new Set(shown.map(([turn]) => turn.id));
    for (const [id, turn] of this.turns) if (!ids.has(id)) this.drop(id, turn);
    this.empty.hidden = shown.length > 0;
    let at = this.empty;
    for (const [turn, itsLive] of shown) {
      if (!this.turns.has(turn.id)) this.turns.set(turn.id, new Turn(this, turn.id));
      const drawn = this.turns.get(turn.id);
      if (at.nextElementSibling !== drawn.element) at.after(drawn.element);
      at = drawn.element;
      drawn.draw(turn, itsLive, this.isIdle);
    }
  }

  /** Keep the elements of the live turn for the finished turn. */
  adoptNew(turns) {
    const added = turns.at(-1);
    const under = this.turns.get("new");
    if (!under || this.line.pending || !added || this.turns.has(added.id)) return;
    if (this.line.live?.turn === "new") return;
    this.turns.delete("new");
    under.id = added.id;
    this.turns.set(added.id, under);
  }

  drop(id, turn) {
    const edited = turn.form && turn.area.value;
    if (edited && edited !== turn.turn.prompt) this.line.keep(edited); // keep the user's text
    turn.element.remove();
    this.turns.delete(id);
  }

  grow(at, html, tail) {
    const turn = this.turns.get(this.line.live.turn) ?? this.turns.get("new");
    if (!turn?.grow(at, html, tail)) this.drawTurns();
    this.drawStatus();
    this.settle();
  }

  drawCard() {
    const { ask } = this.line.view;
    this.card.hidden = !ask || this.line.isDead;
    if (!isNew(this.seen, "ask", ask ?? null)) return;
    if (!ask) return this.card.replaceChildren();
    const area = make("textarea", { rows: 1, spellcheck: "false", "aria-label": "Arguments" });
    area.value = ask.arguments ?? "";
    area.addEventListener("input", () => fit(area));
    const decide = (verdict) => {
      const edited = area.value === (ask.arguments ?? "") ? null : area.value;
      this.line.send({ t: "decide", id: ask.id, verdict, arguments: edited });
    };
    const row = make("div", { class: "svc-row" });
    row.append(textButton("Approve", () => decide("approve"), "svc-main"));
    row.append(textButton("Always approve", () => decide("always")));
    row.append(textButton("Deny", () => decide("deny")));
    const title = make("strong", { id: `${this.id}-ask` }, `The model wants to call ${ask.name}`);
    this.card.setAttribute("aria-labelledby", title.id);
    this.card.replaceChildren(title, make("p", {}, ask.about ?? ""), area, row);
    fit(area);
  }

  drawNotices() {
    const { isDead, problems, view } = this.line;
    const notice = this.settings.isSaying(view) ? "" : view.notice;
    const kind = view.is_problem ? "svc-notice svc-failed" : "svc-notice";
    if (!isNew(this.seen, "notices", [isDead, notice, kind, problems])) return;
    const lines = [notice && make("div", { class: kind }, notice)];
    problems.forEach((text, at) => {
      if (text === view.notice) return;
      const close = iconButton("close", "Dismiss", () => {
        problems.splice(at, 1);
        this.line.draw();
      });
      lines.push(make("div", { class: "svc-notice svc-failed" }, make("span", {}, text), close));
    });
    if (isDead) lines.push(make("div", { class: "svc-notice svc-failed" }, RESTARTED));
    this.notices.replaceChildren(...lines.filter(Boolean));
  }

  drawDraft() {
    if (this.composer.value === this.line.draft) return;
    this.composer.value = this.line.draft;
    fit(this.composer);
  }

  drawButtons() {
    const { isDead, pending, view } = this.line;
    const isOn = view.send_on_enter ?? true;
    const isBusy = this.can("stop");
    this.sendButton.hidden = isBusy;
    this.stopButton.hidden = !isBusy;
    allow(this.sendButton, this.can("send") && !pending && Boolean(this.composer.value.trim()));
    named(this.sendButton, `Send (${isOn ? "Enter" : "Shift+Enter"})`);
    named(this.stopButton, "Stop (Esc)");
    this.composer.disabled = isDead;
    this.composer.placeholder = isDead ? "" : "Message";
  }

  drawStatus() {
    const { status, live, view, hint, pending } = this.line;
    let text = status?.text || live?.status || (pending ? "Sending …" : "");
    if (view.state === "asking") text = "Waiting for your answer";
    if (!text && live && !live.isEnded) text = "Replying …";
    if (!text && view.state === "waiting") text = "Waiting …";
    const left_s = status?.until_ms ? Math.ceil((status.until_ms - Date.now()) / 1000) : 0;
    if (left_s > 0) text += ` (${left_s} s)`;
    setText(this.status, this.line.isDead ? "" : text);
    setText(this.hint, hint);
  }

  say(text) {
    setText(this.spoken, text);
  }

  /** Scroll to the end if the user was there and selects nothing; else offer to jump. */
  settle() {
    if (this.log.isConnected && this.log.clientHeight) this.typeset([]);
    const chosen = getSelection();
    const isSelecting = !chosen.isCollapsed && this.log.contains(chosen.anchorNode);
    if (this.isAtEnd && !isSelecting) this.log.scrollTop = this.log.scrollHeight;
    this.scrolled();
  }

  /** Let the host typeset math in finished blocks, if it can. */
  typeset(blocks) {
    this.untypeset.push(...blocks.filter((block) => /\$|\\[([]/.test(block.textContent)));
    if (!this.log.isConnected) return;
    const typesetter = this.line.model.widget_manager?.rendermime?.latexTypesetter;
    for (const block of this.untypeset.splice(0)) {
      try {
        typesetter?.typeset(block);
      } catch {
        // the source is readable too
      }
    }
  }
}

export default () => {
  let line = null;
  return {
    initialize({ model }) {
      line = new Line(model);
    },
    render({ model, el }) {
      line ??= new Line(model);
      const panel = new Panel(line, el);
      return () => panel.remove();
    },
  };
};

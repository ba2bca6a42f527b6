/* Compare mode: the row that chooses what is compared, and the column of each reply. */

const KINDS = { model: "Models", temperature: "Temperatures" };
const LEAST = 2;

class CompareRow {
  constructor(panel) {
    this.panel = panel;
    this.controls = [];
    this.button = iconButton("compare", () => this.toggle());
    const send = () => this.send(this.by.value, null);
    this.by = make("select", { "aria-label": "What to compare", change: send });
    for (const [value, name] of Object.entries(KINDS)) {
      this.by.append(make("option", { value }, name));
    }
    this.items = span("svc-values");
    this.add = iconButton("add", () => this.send(this.by.value, [...this.values, null]));
    // The values are left out: a choice just made may still be on its way to the kernel.
    this.blind = make("input", { type: "checkbox", change: send });
    const words = "Names are hidden, in a random order, until you pick";
    const blind = make("label", { class: "svc-check", title: words }, this.blind, "Blind");
    this.cost = span("svc-words");
    this.isUnhandled = false; // whether the kernel has yet to handle a choice
    this.refusal = "";
    this.element = group("svc-comparing", "Compare");
    this.element.append(this.by, blind, this.items, this.add, this.cost);
  }

  get values() {
    return this.panel.view.compare?.values ?? [];
  }

  toggle() {
    const isOn = Boolean(this.panel.view.compare?.by);
    this.send(isOn ? "" : this.by.value, null);
  }

  /** Return whether the row shows the error. */
  isSaying({ notice, is_problem: isProblem, compare }) {
    return Boolean(isProblem && compare?.by) && (this.isUnhandled || this.refusal === notice);
  }

  /** Show why a choice of columns was refused. */
  heard(kind, { notice, is_problem: isProblem }) {
    if (kind !== "compare" || !this.isUnhandled) return;
    this.isUnhandled = false;
    this.refusal = isProblem ? notice : "";
  }

  send(name, value) {
    this.isUnhandled = true;
    this.panel.send("compare", { name, value, on: this.blind.checked });
  }

  change(at, text) {
    const value = this.by.value === "temperature" && text !== "" ? Number(text) : text;
    this.send(this.by.value, this.values.with(at, value));
  }

  remove(at) {
    this.send(this.by.value, this.values.filter((_, n) => n !== at));
    this.add.focus();
  }

  draw({ compare = {} }, isAlive) {
    const { by = "", values = [], is_blind: isBlind = false, options = [], cost = "" } = compare;
    const { refusal = "" } = compare;
    this.button.ariaPressed = Boolean(by);
    this.button.title = refusal || BUTTONS.compare.label;
    allow(this.button, isAlive && !refusal);
    const wasDrawn = this.seen?.rows;
    if (isNew(this, "rows", [by, values.length]) && wasDrawn) this.panel.keepHeight();
    this.element.hidden = !by;
    this.panel.root.classList.toggle("svc-models", by === "model");
    if (!by) return;
    this.by.value = by;
    if (isNew(this, "items", [by, options, values.length])) this.makeItems(by, options, values);
    values.forEach((value, at) => {
      const control = this.controls[at];
      if (control !== document.activeElement || control.options) setValue(control, value);
      // a key in a list chooses at once, so that it must pass by what another column has
      for (const option of control.options ?? []) {
        option.disabled = option.value !== value && values.includes(option.value);
      }
    });
    this.blind.checked = isBlind;
    for (const control of [this.by, this.blind, ...this.controls]) control.disabled = !isAlive;
    allow(this.add, isAlive && values.length < compare.max_values);
    const { view } = this.panel.connection;
    const isRefused = this.isSaying(view);
    setText(this.cost, isRefused ? view.notice : cost);
    this.cost.classList.toggle("svc-refusal", isRefused);
  }

  makeItems(by, options, values) {
    this.controls = values.map((_, at) => {
      const isModel = by === "model";
      const number = { type: "number", min: 0, max: 2, step: 0.1 };
      const control = isModel ? selectOf(options) : make("input", number);
      control.ariaLabel = `${isModel ? "Model" : "Temperature"} ${at + 1}`;
      control.addEventListener("change", () => this.change(at, control.value));
      return control;
    });
    const items = this.controls.map((control, at) => {
      const drop = iconButton("close", () => this.remove(at), `Leave out ${at + 1}`);
      drop.hidden = values.length <= LEAST;
      return span("svc-value", control, drop);
    });
    this.items.replaceChildren(...items);
  }
}

function waitingDots() {
  return make("div", { class: "svc-dots", "aria-hidden": "true" }, make("i"), make("i"), make("i"));
}

/** Make the line below the text of a column. */
function columnParts(element) {
  const wait = div("svc-words");
  const dots = waitingDots();
  const problem = make("div", { class: "svc-problem", dir: "auto" });
  const facts = div("svc-words");
  element.append(wait, dots, problem, facts);
  return { wait, dots, problem, facts };
}

/** Draw a column's name, what it waits for, why it failed, and whether it is picked. */
function drawColumn(turn, choice, column, live) {
  const isLive = Boolean(live);
  choice.element.classList.toggle("svc-column", Boolean(column));
  choice.element.classList.toggle("svc-used", Boolean(column?.is_used));
  const { label, problem = "", footer = "", marks = [], version } = column ?? {};
  const start = column?.first_text_s ?? null;
  const first = start === null ? "" : `first words after ${start.toFixed(1)}\u00a0s`;
  choice.dots.hidden = !column || !isLive || live.isEnded || Boolean(problem || footer);
  setText(choice.problem, problem);
  setText(choice.facts, [...marks, footer, first].filter(Boolean).join(" · "));
  drawWait(choice, column);
  if (!column) return;
  setText(choice.number, label);
  choice.number.title = label;
  choice.copy.hidden = isLive || !version;
  choice.pick.hidden = isLive || !version || !(column.is_picked || turn.can?.includes("prefer"));
  setText(choice.pick, column.is_picked ? "Picked" : BUTTONS.pick.label);
  choice.pick.ariaLabel = `${choice.pick.textContent}: ${label}`;
  choice.pick.ariaPressed = column.is_picked;
}

/** Draw what a column waits for, and how long. */
function drawWait(choice, column) {
  setText(choice.wait, countedDown(column?.status ?? "", column?.until_ms));
}

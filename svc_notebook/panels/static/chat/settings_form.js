/* The settings: one control for each field that the kernel describes. */

class SettingsForm {
  constructor(panel) {
    this.panel = panel;
    this.controls = {};
    this.refusals = {};
    this.grid = div("svc-grid");
    this.enter = make("input", { type: "checkbox", change: () => this.setEnter() });
    const words = "Enter sends, Shift+Enter breaks the line";
    const enter = make("label", { class: "svc-check" }, this.enter, words);
    const toggle = () => panel.drawNotices();
    this.rare = div("svc-grid");
    this.rareBox = make("details", {}, make("summary", {}, "Rarely needed"), this.rare);
    const explain = textButton("explain", () => this.explain(explain));
    explain.ariaPressed = "false";
    const last = div("svc-row", enter, explain);
    const parts = [make("summary", {}, "Settings"), this.grid, this.rareBox, last];
    this.element = make("details", { class: "svc-settings", toggle }, ...parts);
  }

  /** Return whether the field of the error shows it. */
  isSaying({ notice, is_problem: isProblem, refused = {} }) {
    const isHere = ([name, { text }]) => text === notice && (this.element.open || name === "model");
    return Boolean(isProblem) && Object.entries(refused).some(isHere);
  }

  /** Show why settings are not used; the cross of a refused value goes back to the one before. */
  drawRefusals(refused, unusable) {
    if (!isNew(this, "refusals", [refused, unusable])) return;
    for (const [name, refusal] of Object.entries(this.refusals)) {
      const text = refused[name]?.text ?? unusable[name] ?? "";
      const words = refused[name] ? "Go back to the value before" : BUTTONS.close.label;
      const close = iconButton("close", () => this.panel.send("dismiss", { name }), words);
      refusal.hidden = !text;
      refusal.replaceChildren(make("span", {}, text), close);
      this.controls[name].setAttribute("aria-invalid", Boolean(text));
    }
  }

  /** Let the next call draw all fields again, except the one that is being edited. */
  forget() {
    for (const [name, control] of Object.entries(this.controls)) {
      if (control !== document.activeElement) delete this.seen[name];
    }
  }

  /** Show what each field means, or hide it. */
  explain(button) {
    const isOn = this.element.classList.toggle("svc-explained");
    button.ariaPressed = isOn;
  }

  /** Show settings that differ from their defaults, or were refused, in the header. */
  drawChips(fields, settings, refused) {
    const changed = fields.filter(({ name, default: usual }) => {
      if (refused[name]) return true;
      const value = settings[name] ?? "";
      return name !== "model" && value !== "" && `${value}` !== `${usual ?? ""}`;
    });
    const chips = changed.map(({ name, label, kind }) => {
      if (refused[name]) return { name, words: `${label} refused`, title: "" };
      const words = kind === "longtext" ? label : `${label} ${settings[name]}`;
      return { name, words, title: kind === "longtext" ? settings[name].slice(0, TITLE_CHARS) : "" };
    });
    this.panel.chips.hidden = !chips.length;
    if (!isNew(this, "chips", chips)) return;
    const drawn = chips.map(({ name, words, title }) => {
      const chip = labelButton(words, () => this.go(name), "svc-chip");
      chip.title = title;
      return chip;
    });
    this.panel.chips.replaceChildren(...drawn);
  }

  /** Go to the field of a setting. */
  go(name) {
    const control = this.controls[name];
    this.element.open = true;
    if (this.rare.contains(control)) this.rareBox.open = true;
    control.focus();
  }

  setEnter() {
    this.panel.send("enter", { on: this.enter.checked });
  }

  draw({ fields = [], settings = {}, unusable = {}, refused = {}, send_on_enter: isOn = true }, isAlive) {
    if (isNew(this, "fields", fields)) this.makeFields(fields);
    this.drawRefusals(refused, unusable);
    this.enter.checked = isOn;
    this.enter.disabled = !isAlive;
    for (const field of fields) {
      const control = this.controls[field.name];
      control.disabled = !isAlive;
      const { value } = refused[field.name] ?? { value: settings[field.name] };
      // the kernel has no number if none can be read, and keeps no key
      const isOnlyHere = refused[field.name] && (value == null || control.validity.badInput);
      if (!isOnlyHere && isNew(this, field.name, value)) setValue(control, value);
      const slider = this.sliders[field.name];
      if (slider) slider.disabled = !isAlive;
      if (slider && slider !== document.activeElement) slider.value = value ?? field.default;
    }
    this.drawChips(fields, settings, refused);
  }

  makeFields(fields) {
    this.controls = {};
    this.sliders = {};
    this.refusals = {};
    delete this.seen.refusals;
    const boxes = fields.map((field) => {
      const control = controlOf(field);
      control.id = `${this.panel.id}-${field.name}`;
      control.addEventListener("change", () => this.change(field, control));
      if (control.localName === "input") control.addEventListener("keydown", takeAtEnter);
      this.controls[field.name] = control;
      delete this.seen[field.name];
      const label = make("label", { for: control.id }, field.label ?? field.name);
      const help = make("small", { id: `${control.id}-help` }, field.help ?? "");
      const refusal = make("small", { id: `${control.id}-refusal`, class: "svc-refusal" });
      refusal.hidden = true;
      this.refusals[field.name] = refusal;
      control.setAttribute("aria-describedby", `${refusal.id} ${help.id}`);
      label.title = control.title = field.help ?? "";
      if (field.name === "model") {
        control.ariaLabel = "Model";
        this.panel.model.replaceChildren(control);
        this.panel.modelRefusal.replaceChildren(refusal);
        return div("svc-field svc-kind-longtext", help);
      }
      const pair = div("svc-pair", this.slider(field, control), control);
      const parts = [label, pair, refusal, help];
      return div(`svc-field svc-kind-${field.kind}`, ...parts);
    });
    const at = fields.map(({ name }) => COMMON.indexOf(name));
    const common = boxes.filter((_, n) => at[n] >= 0);
    common.sort((one, other) => at[boxes.indexOf(one)] - at[boxes.indexOf(other)]);
    this.grid.replaceChildren(...common);
    this.rare.replaceChildren(...boxes.filter((_, n) => at[n] < 0));
    this.rareBox.hidden = !this.rare.childElementCount;
  }

  /** Make a slider for the mouse; with the keyboard, people use the number field next to it. */
  slider(field, control) {
    const { minimum: min, maximum: max, step } = field;
    if (field.kind !== "number" || min == null || max == null) return null;
    const hidden = { "aria-hidden": "true", tabindex: -1 };
    const input = () => (control.value = slider.value);
    const change = () => this.change(field, control);
    const slider = make("input", { type: "range", min, max, step, ...hidden, input, change });
    control.addEventListener("input", () => (slider.value = control.value || field.default));
    this.sliders[field.name] = slider;
    return slider;
  }

  change(field, control) {
    if (control.value === OTHER) return this.askOther(field, control);
    this.panel.send("set", { name: field.name, value: valueOf(field, control) });
  }

  /** Replace the list by a text field, for a name that is not in it, until one is typed. */
  askOther(field, select) {
    const is = { type: "text", id: select.id, autocomplete: "off" };
    for (const name of ["aria-describedby", "aria-label"]) is[name] = select.getAttribute(name);
    const keydown = (event) => {
      if (isInput(event) || !["Enter", "Escape"].includes(event.key)) return;
      event.stopPropagation();
      event.preventDefault(); // Enter would open the list that comes back
      if (event.key === "Escape") typed.value = "";
      typed.blur();
      select.focus();
    };
    const change = () => typed.value.trim() && this.change(field, typed);
    const blur = () => {
      this.controls[field.name] = select;
      typed.replaceWith(select);
      setValue(select, this.panel.view.settings?.[field.name]);
    };
    const typed = make("input", { ...is, keydown, change, blur });
    this.controls[field.name] = typed;
    select.replaceWith(typed);
    typed.focus();
  }
}

const COMMON = ["model", "system", "temperature", "max_tokens", "n"];
const TITLE_CHARS = 300; // of a long text, where the mouse points at its setting
const OTHER = "\u0000other";

/** Outside of a form, Enter takes no value: leaving the field does. */
function takeAtEnter(event) {
  if (isInput(event) || event.key !== "Enter") return;
  event.preventDefault();
  event.stopPropagation();
  event.target.blur();
  event.target.focus({ preventScroll: true });
}

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

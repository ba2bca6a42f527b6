/* The consent card: a tool call that the user approves or denies, with its arguments. */

class ConsentCard {
  constructor(panel) {
    this.panel = panel;
    this.element = make("div", { class: "svc-card", role: "group", hidden: "" });
  }

  draw({ ask }, isAlive) {
    this.element.hidden = !ask || !isAlive;
    if (!isNew(this, "ask", ask ?? null)) return;
    if (!ask) return this.element.replaceChildren();
    const does = { input: () => fit(area), keydown: (event) => this.key(event) };
    const area = make("textarea", { rows: 1, spellcheck: "false", "aria-label": "Arguments", ...does });
    area.value = ask.typed || (ask.arguments ?? "");
    const decide = (verdict) => {
      const edited = area.value === (ask.arguments ?? "") ? null : area.value;
      this.panel.send("decide", { id: ask.id, verdict, arguments: edited });
    };
    const id = `${this.panel.id}-wrong`;
    const wrong = make("div", { id, class: "svc-problem", dir: "auto" }, ask.problem ?? "");
    wrong.hidden = !ask.problem;
    if (ask.problem) area.setAttribute("aria-describedby", id);
    const open = ask.problem ? "" : null;
    const title = `Edit the arguments: ${ask.how_to_edit}`;
    const toggle = () => fit(area);
    const edit = make("details", { open, toggle }, make("summary", {}, title), area, wrong);
    this.approve = textButton("approve", () => decide("approve"), "svc-main");
    // a key that is held down in the editor must not decide
    const keydown = (event) => event.repeat && event.preventDefault();
    const row = make("div", { class: "svc-row", keydown }, this.approve);
    row.append(textButton("always", () => decide("always")), textButton("deny", () => decide("deny")));
    const name = make("strong", { id: `${this.panel.id}-ask` }, `The model wants to call ${ask.name}`);
    this.element.setAttribute("aria-labelledby", name.id);
    const always =
      "Always: this function runs without a question, with any arguments, until it is " +
      `defined again or the kernel restarts; %svc tools ask ${ask.name} takes it back.`;
    const about = make("p", {}, ask.about ?? "");
    const parts = [name, about, argumentTable(ask.arguments), edit, row, make("small", {}, always)];
    this.element.replaceChildren(...parts);
    fit(area);
    if (ask.problem && this.panel.composer.isWaiting()) area.focus();
  }

  /** Go from the editor to Approve: one key alone must not allow a call. */
  key(event) {
    if (isInput(event) || !isSendKey(event, this.panel.view)) return;
    event.preventDefault();
    this.approve.focus();
  }
}

/** Show the arguments of a call, one row each. */
function argumentTable(text) {
  const table = make("table", { "aria-label": "Arguments of the call" });
  for (const [name, value] of Object.entries(JSON.parse(text || "{}"))) {
    const shown = typeof value === "string" ? value : JSON.stringify(value);
    table.append(make("tr", {}, make("th", { scope: "row" }, name), make("td", { dir: "auto" }, shown)));
  }
  table.hidden = !table.childElementCount;
  return table;
}

/* The token meter: how much of the budget the next request takes, with the draft. */

const FULL = 0.85; // of the budget; from here on the bar is red

class TokenMeter {
  constructor() {
    this.level = span("svc-level");
    const is = { role: "meter", "aria-label": "Tokens", "aria-valuemin": 0 };
    this.bar = make("span", { class: "svc-meter", ...is }, this.level);
    this.words = span("svc-budget");
  }

  draw(meter) {
    this.bar.hidden = this.words.hidden = !meter;
    if (!meter) return;
    const budget = meter.budget_tokens; // null where nobody knows it
    const part = budget ? Math.min(1, meter.used_tokens / budget) : 0;
    this.level.style.width = `${100 * part}%`;
    this.bar.classList.toggle("svc-full", part > FULL);
    this.bar.setAttribute("aria-valuenow", meter.used_tokens);
    this.bar.setAttribute("aria-valuemax", budget ?? meter.used_tokens);
    this.bar.setAttribute("aria-valuetext", meter.text);
    const of = budget ? ` of ${short(budget)}` : " tokens";
    setText(this.words, `~${short(meter.used_tokens)}${of}`);
    this.words.title = this.bar.title = meter.text;
  }
}

/** Write a number of tokens briefly: 512, 8.2k. */
function short(n) {
  return n < 1000 ? `${n}` : `${(n / 1000).toFixed(1)}k`;
}

/* What an empty panel shows: its model, its keys, and suggestions to begin with.
 *
 * Only one of several empty panels on a page shows keys and suggestions.
 */

const HINTED = "svc-hinted"; // the panel that has them

const EXAMPLES = [
  "Explain temperature, the parameter, in two sentences.",
  "Write pandas code that counts the missing values of each column.",
  "Suggest three titles for a chart of rain by month.",
];
const THAI_EXAMPLES = [
  "อธิบายพารามิเตอร์ temperature ในสองประโยค",
  "เขียนโค้ด pandas ที่นับค่าที่หายไปในแต่ละคอลัมน์",
  "ตั้งชื่อกราฟปริมาณฝนรายเดือนสามชื่อ",
];

/** Return whether the page or the browser is in Thai. */
function isInThai() {
  return [document.documentElement.lang, navigator.language].some((code) => code.startsWith("th"));
}

/** Write a name as the magic takes it: in quotes if it has spaces. */
function inALine(name) {
  return /[\s'"\\]/.test(name) ? JSON.stringify(name) : name;
}

class Suggestions {
  constructor(panel) {
    this.panel = panel;
    this.element = div("svc-empty");
  }

  /** Decide, once this panel is on the page, whether it shows the hints until it is used. */
  decide() {
    const { root } = this.panel;
    const isUsed = this.element.hidden || root.matches(".svc-away");
    if (isUsed || !root.isConnected) {
      this.isDecided = false;
      root.classList.remove(HINTED);
    } else if (!this.isDecided) {
      this.isDecided = true;
      root.classList.toggle(HINTED, !document.querySelector(`.${HINTED}`));
    }
  }

  draw(view) {
    const { name, settings = {}, tools = [], send_on_enter: isOn } = view;
    const { model, system } = settings;
    if (!isNew(this, "empty", [name, model, system, tools, isOn])) return;
    const rows = {
      Model: model ?? "",
      "System prompt": system || "none so far",
      ...(tools.length && { Tools: tools.join(", ") }),
      Keys: keyWords(view),
      "In a cell": make("span", {}, make("code", {}, `%%svc -c ${inALine(name)}`), " shares this conversation"),
    };
    const list = make("dl");
    for (const [title, text] of Object.entries(rows)) {
      const kind = title === "Keys" ? "svc-first" : null;
      list.append(make("dt", { class: kind }, title), make("dd", { dir: "auto", class: kind }, text));
    }
    const row = group("svc-row svc-first", "Examples");
    const examples = isInThai() ? THAI_EXAMPLES : EXAMPLES;
    row.append(...examples.map((text) => labelButton(text, () => this.panel.composer.fill(text))));
    this.element.replaceChildren(list, row);
  }
}

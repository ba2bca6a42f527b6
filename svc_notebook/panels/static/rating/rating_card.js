/* What is rated now: one reply, or two side by side, below what they answer. */

const SIDES = ["Left", "Right"];

class RatingCard {
  constructor(model) {
    this.model = model;
    this.untypeset = [];
    const title = make("summary", {}, "Prompt");
    const [others, prompts, filled] = [1, 2, 3].map(() => div("svc-blocks"));
    this.parts = { others, prompts, filled };
    this.prompt = make("details", {}, title, prompts); // while open, it hides `filled`
    this.asked = div("svc-asked", others, this.prompt, filled);
    this.isChosen = false; // whether the rater has folded or unfolded it
    title.addEventListener("click", () => (this.isChosen = true));
    this.replies = make("div");
    this.stage = make("div", { class: "svc-stage", tabindex: 0, role: "group" }, this.replies);
    this.element = div("svc-middle", this.asked, this.stage);
  }

  /** Draw a card; return whether it is another card than before. */
  draw(card, nTotal) {
    this.element.hidden = !card;
    const isOther = isNew(this, "id", card?.id ?? null);
    if (!card || !isNew(this, "card", [card, nTotal])) return isOther;
    this.stage.setAttribute("aria-label", cardTitle(card, nTotal));
    for (const name in this.parts) this.parts[name].replaceChildren(...card[name].map(drawPart));
    this.drawReplies(card.replies);
    if (isOther) this.stage.scrollTop = this.asked.scrollTop = 0;
    if (isOther && !this.isChosen) this.prompt.open = card.is_open;
    return isOther;
  }

  drawReplies(replies) {
    const isPair = replies.length > 1;
    this.replies.className = isPair ? "svc-several" : "";
    const boxes = replies.map(({ html, label }, at) => {
      const words = [isPair && SIDES[at], label].filter(Boolean).join(" · ");
      const blocks = div("svc-blocks");
      this.untypeset.push(...setBlocks(blocks, html));
      const bar = words ? div("svc-bar", span("svc-words", words)) : null;
      const is = isPair ? { role: "group", "aria-label": words } : {};
      return make("div", { class: "svc-choice", ...is }, bar, div("svc-text", blocks));
    });
    this.replies.replaceChildren(...boxes);
    this.typeset();
  }

  /** Typeset math once the card is on the page. */
  typeset() {
    if (this.stage.isConnected) typeset(this.untypeset.splice(0), this.model);
  }

  /** Fold or unfold the prompt; a button in it that has the focus would be hidden. */
  toggle() {
    this.isChosen = true;
    if (this.asked.contains(document.activeElement)) this.stage.focus({ preventScroll: true });
    this.prompt.open = !this.prompt.open;
  }
}

function drawPart({ name, html }) {
  const value = div("svc-given");
  setBlocks(value, html);
  return make("div", {}, div("svc-who", name), value);
}

function cardTitle({ number, replies }, nTotal) {
  return `${replies.length > 1 ? "Pair" : "Reply"} ${number} of ${nTotal}`;
}

/** Describe a card to a screen reader: its number, and how each reply begins. */
function cardWords(card, nTotal) {
  const isPair = card.replies.length > 1;
  const texts = card.replies.map(({ spoken }, at) => (isPair ? `${SIDES[at]}: ${spoken}` : spoken));
  return [cardTitle(card, nTotal), ...texts].join(". ");
}

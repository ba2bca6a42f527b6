/* The composer: the text area and its keys, such as the one that sends; Send and Stop, the
 * attached chips, and the status below. */

const WAIT = "A reply is running: wait, or stop it (Esc). Your draft is kept.";
const EDIT_LAST_KEY = "ArrowUp"; // in an empty composer
/** A mark as `%%svc` fills it in a cell, and the texts where double braces mean something else. */
const MARK = /(?<!\\)\{\{[\p{ID_Start}_]\p{ID_Continue}*(?:\.[\p{ID_Start}_]\p{ID_Continue}*|\[[^[\]{}\n]+\])*\}\}/u;
const CODE_PARTS = /```[^]*?(?:```|(?![^]))|`[^`\n]*`|^(?: {4}|\t).*$/gm;
const OTHER_BRACES = /\b(?:[rR]?[fF][rR]?["']|format\()|\{%|<\//; // f-strings, templates of pages
const MAX_MARK_CHARS = 24;

/** Return the names of two keys: the one that sends, and the one that starts a new line. */
function sendKeys({ send_on_enter: isOn = true }) {
  return isOn ? ["Enter", "Shift+Enter"] : ["Shift+Enter", "Enter"];
}

/** Return a sentence about these keys, for an empty panel. */
function keyWords(view) {
  const [send, breakLine] = sendKeys(view);
  return `${send} sends, ${breakLine} breaks the line, Esc stops, ↑ edits the last prompt, @ attaches a value, Shift+Tab goes to replies, Ctrl+M to the cell`;
}

/** Return whether a key sends; Ctrl+Enter always does. */
function isSendKey(event, { send_on_enter: isOn = true }) {
  if (event.key !== "Enter" || event.altKey) return false;
  if (event.ctrlKey || event.metaKey) return true;
  return event.shiftKey !== isOn;
}

/** Say how a mark such as {{name}} is sent; "" if the text has none outside of code. */
function markWords(text) {
  const prose = text.replace(CODE_PARTS, "");
  const [mark = ""] = (!OTHER_BRACES.test(prose) && MARK.exec(prose)) || [];
  const short = mark.length > MAX_MARK_CHARS ? "{{…}}" : mark;
  return mark && `${short} is sent as typed. To attach a variable, type @.`;
}

class Composer {
  constructor(panel) {
    const { connection } = panel;
    Object.assign(this, { panel, connection, drafts: connection.drafts });
    const does = { keydown: (event) => this.key(event), input: () => this.typed() };
    this.area = make("textarea", { rows: 1, "aria-label": "Message", dir: "auto", ...does });
    this.sendButton = iconButton("send", () => this.submit());
    this.stopButton = iconButton("stop", () => this.stop());
    this.status = span("svc-status");
    this.hint = span("svc-hint");
    this.mark = make("span", { dir: "auto" });
    this.count = span("svc-words");
    const box = div("svc-composer", this.area, this.count);
    box.append(this.sendButton, this.stopButton);
    this.under = div("svc-under", this.status, this.mark, this.hint);
    this.attach = new AttachMenu(panel, this.area, this.drafts, () => connection.draw());
    this.element = div("svc-form", box, this.attach.element);
  }

  focus() {
    this.area.focus({ preventScroll: true });
  }

  /** Return whether the composer is empty and has the focus. */
  isWaiting() {
    return document.activeElement === this.area && !this.area.value;
  }

  key(event) {
    if (isInput(event) || this.attach.key(event)) return;
    if (isSendKey(event, this.connection.view)) {
      event.preventDefault();
      this.submit();
    } else if (event.key === EDIT_LAST_KEY && hasNoModifier(event) && !this.area.value) {
      event.preventDefault();
      this.panel.editLast();
    }
  }

  typed() {
    this.drafts.text = this.area.value;
    this.drafts.store();
    fit(this.area);
    for (const view of this.connection.views) {
      if (view !== this.panel) view.composer.drawDraft();
      view.drawMeter();
    }
    const wasMarked = this.mark.textContent;
    this.drawButtons();
    const words = this.mark.textContent;
    if (words && words !== wasMarked) this.panel.say(words);
  }

  fill(text) {
    this.area.value = text;
    this.typed();
    this.area.focus();
  }

  submit() {
    const { panel, area } = this;
    if (!area.value.trim()) return;
    if (panel.can("stop")) panel.tellBriefly(WAIT);
    if (!isAllowed(this.sendButton)) return;
    panel.conversations.close(this);
    panel.isAtEnd = true;
    this.focus();
    this.drafts.sendPrompt(area.value);
  }

  stop() {
    this.focus();
    this.connection.send({ t: "stop" });
  }

  drawDraft() {
    this.attach.draw();
    if (this.area.value === this.drafts.text) return;
    this.area.value = this.drafts.text;
    fit(this.area);
  }

  drawButtons() {
    const { isDead, view } = this.connection;
    const isBusy = this.panel.can("stop");
    const canSend = this.panel.can("send") && !this.drafts.pending;
    this.sendButton.hidden = isBusy;
    this.stopButton.hidden = !isBusy;
    allow(this.sendButton, canSend && Boolean(this.area.value.trim()));
    const { by, values } = view.compare ?? {};
    const count = by ? `${values.length} ${KINDS[by].toLowerCase()}` : "";
    setText(this.count, count);
    this.count.hidden = !count || isBusy;
    const send = by ? `Ask ${count}` : BUTTONS.send.label;
    named(this.sendButton, `${send} (${sendKeys(view)[0]})`);
    setText(this.mark, isDead ? "" : markWords(this.area.value));
    this.area.disabled = isDead;
    this.drawPlaceholder();
  }

  /** Show, in place of the placeholder, the keys of the transcript while one may need them. */
  drawPlaceholder() {
    const words = this.panel.keys.isNeeded ? ARROW_WORDS : "Message";
    this.area.placeholder = this.connection.isDead ? "" : words;
  }

  drawStatus() {
    const { status, live, view, hint, isDead } = this.connection;
    let text = status?.text || live?.status || (this.drafts.pending ? "Sending …" : "");
    if (view.state === "asking") text = "Waiting for your answer";
    if (!text && live && !live.isEnded) text = live.asker ? `Replying to ${live.asker} …` : "Replying … Esc stops it";
    if (!text && view.state === "waiting") text = "Waiting …";
    text = countedDown(text, status?.until_ms);
    const { brief, isIdle } = this.panel;
    if (brief?.isIdle === isIdle && Date.now() < brief.until_ms) text = brief.words;
    setText(this.status, isDead ? "" : text);
    setText(this.hint, hint);
  }
}

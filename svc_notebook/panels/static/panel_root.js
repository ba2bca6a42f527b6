/* What every panel has around its parts: the element that keeps keys from the notebook, the
 * line that is read out, math, and drafts that outlive a reload.
 */

/** JupyterLab and Notebook ignore keys pressed in an element with this attribute. */
const QUIET_KEYS = "data-lm-suppress-shortcuts";
const CODE = /^(?:Key([A-Z])|Digit(\d))$/;

/** Make the element of a panel; the notebook gets no key that is pressed in it. */
function panelRoot(name = "svc-panel") {
  const root = make("section", { class: name, [QUIET_KEYS]: "true" });
  // the notebook's shortcuts look at a button before its parents
  root.addEventListener("focusin", ({ target }) => target.setAttribute(QUIET_KEYS, "true"));
  root.addEventListener("keydown", passSaveKey);
  new TextUndo(root);
  return root;
}

/** Let JupyterLab save the notebook; it ignores keys that are pressed in a panel. */
function passSaveKey(event) {
  const { ctrlKey, metaKey, altKey, shiftKey } = event;
  if (latinKey(event) !== "s" || !(ctrlKey || metaKey) || altKey || shiftKey) return;
  if (!document.querySelector(".jp-Notebook")) return;
  event.preventDefault();
  document.body.dispatchEvent(new KeyboardEvent("keydown", event));
}

/** Make the line that a screen reader reads out whenever it changes. */
function spokenLine() {
  return make("div", { class: "svc-unseen", role: "status", "aria-live": "polite" });
}

/** Let the host typeset math in finished blocks, if it can. */
function typeset(blocks, model) {
  const typesetter = model.widget_manager?.rendermime?.latexTypesetter;
  for (const block of blocks.filter(({ textContent }) => /\$|\\([([]|begin)/.test(textContent))) {
    try {
      typesetter?.typeset(block);
    } catch {
      // the source is readable too
    }
  }
}

/** Return the key as a keyboard with Latin letters has it, so that other layouts have it, too. */
function latinKey({ key, code }) {
  if (key.length > 1 || /^[\x20-\x7e]$/.test(key)) return key.toLowerCase();
  const [, letter, digit] = CODE.exec(code) ?? [];
  return (letter ?? digit ?? key).toLowerCase();
}

function hasNoModifier({ shiftKey, ctrlKey, altKey, metaKey }) {
  return !shiftKey && !ctrlKey && !altKey && !metaKey;
}

/** Return whether a key belongs to an input method that composes characters. */
function isInput(event) {
  return event.isComposing || event.keyCode === 229;
}

/** Insert a line break, since JupyterLab handles Enter in a cell. */
function breakLine(event) {
  event.preventDefault();
  insertText(event.target, "\n");
}

/** Drafts outlive a reload of the page, in this tab only. */
function stored(name, panelId) {
  try {
    return sessionStorage.getItem(`svc-${name} ${panelId}`) ?? "";
  } catch {
    return ""; // the page may not store anything
  }
}

/** Return the keys of the stored drafts of a kind. */
function storedKeys(name) {
  try {
    const start = `svc-${name} `;
    const keys = Object.keys(sessionStorage).filter((key) => key.startsWith(start));
    return keys.map((key) => key.slice(start.length));
  } catch {
    return []; // as above
  }
}

function store(name, panelId, text) {
  try {
    if (text) sessionStorage.setItem(`svc-${name} ${panelId}`, text);
    else sessionStorage.removeItem(`svc-${name} ${panelId}`);
  } catch {
    // as above
  }
}

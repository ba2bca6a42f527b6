/* The keys of the panel: send, break the line, stop, edit the last prompt, undo and redo. */

/** JupyterLab and Notebook leave the keys to an element with this attribute. */
const QUIET_KEYS = "data-lm-suppress-shortcuts";
const STOP_KEY = "Escape";
const EDIT_LAST_KEY = "ArrowUp"; // in an empty composer

/** Return the names of the key that sends and of the one that breaks the line. */
function sendKeys({ send_on_enter: isOn = true }) {
  return isOn ? ["Enter", "Shift+Enter"] : ["Shift+Enter", "Enter"];
}

/** Return the keys in words, for an empty panel. */
function keyWords(view) {
  const [send, breakLine] = sendKeys(view);
  return `${send} sends, ${breakLine} breaks the line, Esc stops, ↑ edits the last prompt, @ attaches a value`;
}

/** Return whether a key sends; Ctrl+Enter always does. */
function isSendKey(event, { send_on_enter: isOn = true }) {
  if (event.key !== "Enter" || event.altKey) return false;
  if (event.ctrlKey || event.metaKey) return true;
  return event.shiftKey !== isOn;
}

function hasNoModifier({ shiftKey, ctrlKey, altKey, metaKey }) {
  return !shiftKey && !ctrlKey && !altKey && !metaKey;
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

/** Insert a line break, since JupyterLab handles Enter in a cell. */
function breakLine(event) {
  event.preventDefault();
  insertText(event.target, "\n");
}

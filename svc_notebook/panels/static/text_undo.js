/* Undo and redo of what is typed in the fields of a panel, and their keys.
 *
 * The browser's own undo would not do: Chromium has one for the whole page, which changes the
 * cell of the notebook that was edited last.
 */

const TEXT_FIELDS = 'textarea, input:not([type="checkbox"], [type="range"])';
const UNDO_EVENT = "svc-undo"; // a step that no field takes; its detail is undo or redo
const STEPS = { historyUndo: "undo", historyRedo: "redo" }; // of the browser's menu
const MAX_STEPS = 200;

/** Return undo or redo for its key. */
function undoStep(event) {
  const { ctrlKey, metaKey, altKey, shiftKey } = event;
  if (!(ctrlKey || metaKey) || altKey) return "";
  const letter = latinKey(event);
  if (letter === "z") return shiftKey ? "redo" : "undo";
  return letter === "y" ? "redo" : "";
}

/** The steps of all fields in an element, each a text and where its cursor was. */
class TextUndo {
  constructor(root) {
    this.steps = new WeakMap();
    root.addEventListener("focusin", ({ target }) => this.stepsOf(target));
    root.addEventListener("keydown", (event) => this.key(event));
    root.addEventListener("beforeinput", (event) => this.before(event));
    root.addEventListener("input", (event) => this.note(event));
    root.addEventListener("change", ({ target }) => (this.stepsOf(target).sent = target.value));
    root.addEventListener("focusout", ({ target }) => this.sendChange(target));
  }

  /** Return the steps of a field; a text that a script has put there begins without any. */
  stepsOf(field) {
    const { value } = field;
    const steps = this.steps.get(field);
    if (steps?.now.value === value) return steps;
    const fresh = { now: textOf(field), undo: [], redo: [], sent: steps?.sent ?? value };
    this.steps.set(field, fresh);
    return fresh;
  }

  key(event) {
    const step = isInput(event) ? "" : undoStep(event);
    const { target } = event;
    if (!step) return target.matches(TEXT_FIELDS) && this.stepsOf(target);
    event.preventDefault();
    if (target.matches(TEXT_FIELDS) && (this.go(target, step) || target.value)) return;
    const { repeat: isHeld } = event;
    if (!isHeld) target.dispatchEvent(new CustomEvent(UNDO_EVENT, { bubbles: true, detail: step }));
  }

  before(event) {
    const step = STEPS[event.inputType];
    if (!step) return this.stepsOf(event.target);
    event.preventDefault();
    this.go(event.target, step);
  }

  /** Keep the text before a change; the letters of a word are one step. */
  note({ target, inputType, data }) {
    const steps = this.steps.get(target);
    if (!steps || steps.now.value === target.value) return;
    const isWord = inputType === "insertText" && data?.length === 1 && /\S/.test(data);
    const isSame = inputType === steps.now.kind && steps.now.end === target.selectionStart - (data?.length ?? 0);
    if (!isWord || !isSame) steps.undo = [...steps.undo, steps.now].slice(-MAX_STEPS);
    steps.now = { ...textOf(target), kind: inputType };
    steps.redo = [];
  }

  /** Take a step in a field; return whether there was one. */
  go(field, name) {
    const steps = this.stepsOf(field);
    const text = steps[name].pop();
    if (!text) return false;
    steps[name === "undo" ? "redo" : "undo"].push(steps.now);
    steps.now = { ...text, kind: "" };
    field.value = text.value;
    if (text.end != null) field.setSelectionRange(text.end, text.end); // numbers have no cursor
    field.dispatchEvent(new Event("input", { bubbles: true }));
    return true;
  }

  /** Send the change of a field that is left after a step: the browser does not. */
  sendChange(field) {
    const { sent, undo, redo } = this.stepsOf(field);
    const hasSteps = undo.length || redo.length;
    if (hasSteps && sent !== field.value) field.dispatchEvent(new Event("change", { bubbles: true }));
  }
}

function textOf(field) {
  return { value: field.value, end: field.selectionStart ?? null };
}

/* Makes and changes elements of the page, and fits text areas. */

/** Make an element; strings among the children become text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

function div(kind, ...children) {
  return make("div", { class: kind }, ...children);
}

function span(kind, ...children) {
  return make("span", { class: kind }, ...children);
}

function group(kind, label) {
  return make("div", { class: kind, role: "group", "aria-label": label });
}

/** Make an id that no other element of the page has: each widget has a copy of this script. */
function newId() {
  return `svc-${Math.random().toString(36).slice(2)}`;
}

/** Write a number with what is counted. */
function counted(n, word) {
  return `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
}

/** Add the seconds that are left to a text. */
function countedDown(text, until_ms) {
  const left_s = Math.ceil(((until_ms ?? 0) - Date.now()) / 1000);
  return text && left_s > 0 ? `${text} (${left_s} s)` : text;
}

/** Set an element's text only if it differs, so that the user's selection in it stays. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Return whether a value differs from the last one that its owner has seen under this name. */
function isNew(owner, name, value) {
  const seen = (owner.seen ??= {});
  const text = JSON.stringify(value) ?? "";
  if (seen[name] === text) return false;
  seen[name] = text;
  return true;
}

/** Fit the height of a text area to its text. */
function fit(area) {
  const { offsetHeight, style } = area.parentElement;
  style.minHeight = `${offsetHeight}px`; // what is around it must not scroll meanwhile
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
  style.minHeight = "";
}

/** Scroll as far as needed to show a whole element. */
function showWhole(element) {
  element.scrollIntoView({ block: "nearest" });
}

/** Replace the selection as typing does, so that it can be undone. */
function insertText(area, text) {
  if (document.execCommand("insertText", false, text)) return;
  area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
  area.dispatchEvent(new Event("input", { bubbles: true }));
}

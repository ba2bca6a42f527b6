/* Elements, icons, text areas, and HTML from the kernel.
 *
 * Text reaches the page only through `make` (as text) or `blocksOf` (HTML, rebuilt from a
 * list of allowed elements). Nothing is loaded from the network.
 */

const SVG = "http://www.w3.org/2000/svg";
/** The icons of several scripts; each other script adds those of its own buttons. */
const ICONS = {
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  done: "M3 8.5 6.5 12 13 4.5",
  close: "M4 4l8 8M12 4l-8 8",
};

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

/** Make an icon; the button around it has the label. */
function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Make an icon button; while it is not allowed it keeps the focus but does nothing. */
function iconButton(name, label, act) {
  const click = (event) => isAllowed(button) && act(event);
  const button = make("button", { type: "button", class: `svc-icon svc-${name}`, click });
  button.append(icon(name));
  return named(button, label);
}

function textButton(label, act, kind = "") {
  const click = (event) => isAllowed(button) && act(event);
  const button = make("button", { type: "button", class: `svc-button ${kind}`, click }, label);
  return button;
}

function group(kind, label) {
  return make("span", { class: kind, role: "group", "aria-label": label });
}

function named(button, label) {
  button.setAttribute("aria-label", label);
  button.title = label;
  return button;
}

function allow(button, isIt) {
  const isOff = String(!isIt);
  if (button.getAttribute("aria-disabled") !== isOff) button.setAttribute("aria-disabled", isOff);
}

function isAllowed(button) {
  return button.getAttribute("aria-disabled") !== "true";
}

/** Set text only if it differs, so that a selection in it is kept. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Return whether a value differs from the last one with this name. */
function isNew(seen, name, value) {
  const text = JSON.stringify(value) ?? "";
  if (seen[name] === text) return false;
  seen[name] = text;
  return true;
}

/** Make a button that copies a text and briefly confirms it. */
function copyButton(label, text) {
  let timer = 0;
  const button = iconButton("copy", label, async () => {
    await copyText(text());
    show("done", "Copied");
    clearTimeout(timer);
    timer = setTimeout(() => show("copy", label), 1500);
  });
  const show = (name, words) => {
    button.replaceChildren(icon(name));
    named(button, words);
  };
  return button;
}

/** Copy with the clipboard, or with a selection if the page may not use it. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const focused = document.activeElement;
    const area = make("textarea", { class: "svc-unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    focused?.focus({ preventScroll: true });
  }
}

/* ---- Text areas ---- */

/** Fit the height of a text area to its text. */
function fit(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}

/** Insert a line break, since JupyterLab handles Enter in a cell. */
function breakLine(event) {
  event.preventDefault();
  insertText(event.target, "\n");
}

/** Replace the selection as typing does, so that it can be undone. */
function insertText(area, text) {
  if (document.execCommand("insertText", false, text)) return;
  area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
  area.dispatchEvent(new Event("input", { bubbles: true }));
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

/* ---- HTML from the kernel ---- */

const HTML = "http://www.w3.org/1999/xhtml";
const ALLOWED = new Set(
  ("a b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i li ol p pre " +
    "s small span strong sub summary sup table tbody td th thead tr ul").split(" "),
);
const LEFT_OUT = new Set(
  ("applet audio base button embed form frame frameset iframe img input link math meta " +
    "noscript object picture script select source style template textarea title video").split(" "),
);
const LINK = /^(?:https?:\/\/[^/\\]|mailto:|#)/i;
const CLASS = /^(?:highlight|[a-z]{1,2}\d?)$/; // the classes of coloured code
const sources = new WeakMap();

/** Parse HTML in a document where nothing runs or loads, and rebuild its blocks. */
function blocksOf(html) {
  const inert = new DOMParser().parseFromString(html, "text/html").body;
  return [...inert.childNodes]
    .filter((node) => node.nodeType === 1 || node.textContent.trim())
    .map((node) => ({ source: node.outerHTML ?? node.textContent, node }));
}

function built({ source, node }, isGrowing) {
  const copy = rebuilt(node, isGrowing);
  const block = copy?.nodeType === 1 ? copy : make("div", {}, copy);
  if (!block.querySelector("pre") && block.localName !== "pre") block.dir = "auto";
  sources.set(block, source);
  return block;
}

/** Copy a node with allowed elements and attributes; null if it is not allowed. */
function rebuilt(node, isGrowing) {
  if (node.nodeType === 3) return document.createTextNode(node.data);
  if (node.nodeType !== 1 || node.namespaceURI !== HTML) return null;
  const tag = node.localName;
  if (LEFT_OUT.has(tag)) return null;
  const copy = ALLOWED.has(tag) ? make(tag) : document.createDocumentFragment();
  if (copy.nodeType === 1) copyAttributes(node, copy);
  for (const child of node.childNodes) copy.append(rebuilt(child, isGrowing) ?? "");
  return tag === "pre" && !isGrowing ? withCopy(copy) : copy;
}

function copyAttributes(node, copy) {
  const classes = [...node.classList].filter((name) => CLASS.test(name));
  const style = node.getAttribute("style") ?? "";
  const side = /text-align:\s*(left|right|center)/.exec(style);
  if (side) classes.push(`svc-${side[1]}`);
  if (/margin-bottom:\s*-1em/.test(style)) classes.push("svc-joined");
  if (classes.length) copy.className = classes.join(" ");
  const href = node.getAttribute("href") ?? "";
  if (copy.localName === "a" && LINK.test(href)) {
    copy.setAttribute("href", href);
    if (!href.startsWith("#")) copy.setAttribute("target", "_blank");
    copy.setAttribute("rel", "noopener noreferrer");
  }
  const start = node.getAttribute("start") ?? "";
  if (copy.localName === "ol" && /^\d{1,9}$/.test(start)) copy.setAttribute("start", start);
}

function withCopy(pre) {
  pre.tabIndex = 0; // so that the keyboard can scroll long lines
  return make("div", { class: "svc-code" }, pre, copyButton("Copy code", () => pre.textContent));
}

/** Show HTML in a box; blocks that have not changed keep their elements. */
function setBlocks(box, html) {
  const added = [];
  let old = box.firstElementChild;
  for (const block of blocksOf(html)) {
    let found = old;
    while (found && sources.get(found) !== block.source) found = found.nextElementSibling;
    if (found) {
      while (old !== found) old = dropped(old);
      old = old.nextElementSibling;
    } else {
      added.push(built(block));
      box.insertBefore(added.at(-1), old);
    }
  }
  while (old) old = dropped(old);
  return added;
}

function dropped(element) {
  const next = element.nextElementSibling;
  element.remove();
  return next;
}

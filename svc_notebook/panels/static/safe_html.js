/* HTML from the kernel, made safe: it is rebuilt from a list of allowed elements.
 *
 * Text reaches the page only through `make` (as text) or `blocksOf` (as HTML). Nothing is
 * loaded from the network.
 */

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
const CELL = ".highlight:not([data-no-cell])"; // code that can be a cell, perhaps with a magic
const sources = new WeakMap();

/** Parse HTML in a document where nothing runs or loads, and rebuild its blocks. */
function blocksOf(html) {
  const inert = new DOMParser().parseFromString(html, "text/html").body;
  return [...inert.childNodes]
    .filter((node) => node.nodeType === 1 || node.textContent.trim())
    .map((node) => ({ source: node.outerHTML ?? node.textContent, node }));
}

/** Remove the last blocks. */
function withoutLast(html, n) {
  const blocks = blocksOf(html).slice(0, -n);
  return blocks.map(({ source }) => source).join("");
}

/** Build a block; a reply's code can be inserted as a cell, its tables made DataFrames. */
function built({ source, node }, isGrowing, isReply) {
  const copy = rebuilt(node, isGrowing, isReply);
  const block = copy?.nodeType === 1 ? copy : make("div", {}, copy);
  if (!block.querySelector("pre") && block.localName !== "pre") block.dir = "auto";
  sources.set(block, source);
  return block;
}

/** Copy a node with allowed elements and attributes; null if it is not allowed. */
function rebuilt(node, isGrowing, isReply) {
  if (node.nodeType === 3) return document.createTextNode(node.data);
  if (node.nodeType !== 1 || node.namespaceURI !== HTML) return null;
  const tag = node.localName;
  if (LEFT_OUT.has(tag)) return null;
  const copy = ALLOWED.has(tag) ? make(tag) : document.createDocumentFragment();
  if (copy.nodeType === 1) copyAttributes(node, copy);
  for (const child of node.childNodes) copy.append(rebuilt(child, isGrowing, isReply) ?? "");
  if (isGrowing) return copy;
  if (tag === "pre") return withButtons(copy, isReply && node.parentElement.closest(CELL)?.dataset);
  const isTable = isReply && tag === "div" && node.firstElementChild?.localName === "table";
  return isTable ? withFrame(copy) : copy;
}

function copyAttributes(node, copy) {
  const classes = [...node.classList].filter((name) => CLASS.test(name));
  const style = node.getAttribute("style") ?? "";
  const side = /text-align:\s*(left|right|center)/.exec(style);
  if (side) classes.push(`svc-${side[1]}`);
  if (/list-style:\s*none/.test(style)) classes.push("svc-unmarked");
  if (/white-space:\s*nowrap/.test(style)) classes.push("svc-unbroken");
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

/** Show HTML in a box; blocks that have not changed keep their elements. */
function setBlocks(box, html, isReply) {
  const added = [];
  let old = box.firstElementChild;
  for (const block of blocksOf(html)) {
    let same = old;
    while (same && sources.get(same) !== block.source) same = same.nextElementSibling;
    if (same) {
      while (old !== same) old = dropped(old);
      old = old.nextElementSibling;
    } else {
      added.push(built(block, false, isReply));
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

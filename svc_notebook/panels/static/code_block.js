/* A code block of a reply: copy it, or insert it as a cell of the notebook, which never runs it.
 *
 * An extension of the front end that inserts a cell cancels the event; if none does, the source
 * is copied. A panel that knows its notebook adds it to the event.
 */

const INSERT_EVENT = "svc-notebook:insert-below";
const COPIED = "Copied: paste it into a new cell";
const COPIED_MS = 6000;
const copiedElsewhere = (notebook) =>
  `Copied, not inserted: this panel belongs to ${notebook}. Go there, or paste it here.`;

/** Add the buttons of a code block; `asCell` names the magic of a cell, if it can be one. */
function withButtons(pre, asCell) {
  pre.tabIndex = 0; // so that the keyboard can scroll long lines
  const code = () => pre.textContent;
  const row = div("svc-code-row");
  const magic = asCell?.magic && !code().trimStart().startsWith("%%") ? `%%${asCell.magic}` : "";
  const cell = () => (magic && `${magic}\n`) + code().replace(/\n$/, ""); // without an empty last line
  if (asCell) row.append(iconButton("insert", () => insertBelow(cell(), pre, row, magic)));
  row.append(copyButton(code, "Copy code"));
  return div("svc-code", pre, row);
}

/** Let an extension insert a cell, or copy the source and say so. */
async function insertBelow(source, element, row, magic = "") {
  const detail = { source, element };
  const is = { bubbles: true, composed: true, cancelable: true, detail };
  const isLeft = row.dispatchEvent(new CustomEvent(INSERT_EVENT, is));
  if (isLeft) await copyText(source);
  const { isElsewhere, notebook } = detail; // whether the extension looks for it, but cannot see it
  const copied = isElsewhere && notebook ? copiedElsewhere(notebook) : COPIED;
  const text = isLeft ? copied : `Inserted as a ${magic && `${magic} `}cell`;
  row.querySelector(".svc-words")?.remove();
  const words = span("svc-words", text);
  row.prepend(words);
  setTimeout(() => words.remove(), COPIED_MS);
  row.dispatchEvent(new CustomEvent("svc-say", { bubbles: true, detail: text }));
}

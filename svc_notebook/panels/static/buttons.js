/* Every button of the panel: its label, its icon, its key, and where it is.
 *
 * A button with the name of an action in panels/panel_actions.py asks the kernel for this action.
 * To add a button, add a row to `BUTTONS`, and its name to the list of the place that draws it.
 */

const BUTTONS = {
  // The header
  list: { label: "Conversations", icon: "M2.5 4h11M2.5 8h11M2.5 12h7" },
  compare: { label: "Compare replies side by side", icon: "M2.5 3h4.5v10H2.5zM9 3h4.5v10H9z" },
  undo: { label: "Undo the last change", icon: "M6 3 3 6l3 3M3 6h6.5a3.5 3.5 0 0 1 0 7H6" },
  redo: { label: "Redo what was undone", icon: "M10 3l3 3-3 3M13 6H6.5a3.5 3.5 0 0 0 0 7H10" },
  clear: {
    label: "Clear the conversation",
    icon: "M6 13.2h7.5M2.8 9.4l5.8-5.8 4.2 4.2-5.4 5.4H6zM5.6 6.6l4.2 4.2",
  },
  // The composer
  send: { label: "Send", icon: "M8 13V3M3.5 7.5 8 3l4.5 4.5" },
  stop: { label: "Stop", key: "Esc", icon: "M4.5 4.5h7v7h-7z" },
  // A code block or a table of a reply
  insert: { label: "Insert as cell below", icon: "M2.5 3h11v4h-11zM8 9.5v5M5.5 12h5" },
  frame: { label: "As DataFrame" },
  make: { label: "Make" },
  replace: { label: "Replace" },
  down: { label: "Jump to the latest", icon: "M8 3v10M3.5 8.5 8 13l4.5-4.5" },
  // A turn
  copy: { label: "Copy the reply", icon: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z" },
  regenerate: { label: "Ask again", icon: "M13.2 2.8v3.7H9.5M13 6.2A5.3 5.3 0 1 0 13.2 9.6" },
  edit: {
    label: "Edit the prompt and ask again",
    icon: "M3 13l.7-2.9L10.8 3 13 5.2 5.9 12.3zM9.4 4.4l2.2 2.2",
  },
  more: { label: "More", icon: "M3.5 8h.01M8 8h.01M12.5 8h.01" },
  pin: { label: "Pin: always send this turn", icon: "M5.8 2.5h4.4l-.6 4L12 9H4l2.4-2.5zM8 9v4.5" },
  hide: {
    label: "Hide: do not send this turn",
    icon: "M1.5 8S4 3.8 8 3.8 14.5 8 14.5 8 12 12.2 8 12.2 1.5 8 1.5 8zM3 13 13 3",
  },
  delete: {
    label: "Delete this turn",
    icon: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9M6.9 7v4M9.1 7v4",
  },
  previous: { label: "Previous version", icon: "M10 3.5 5.5 8l4.5 4.5" },
  next: { label: "Next version", icon: "M6 3.5 10.5 8 6 12.5" },
  continue: { label: "Continue", title: "Continue the reply" },
  pick: {
    label: "Pick",
    title: "Later turns go on from the reply that is picked; it is scored, too",
  },
  resend: { label: "Ask again" },
  cancel: { label: "Cancel" },
  // The consent card
  approve: { label: "Approve" },
  always: { label: "Always approve" },
  deny: { label: "Deny" },
  // The dialog of conversations
  new: { label: "New conversation" },
  remove: { label: "Delete" },
  keep: { label: "Cancel" },
  rename: { label: "Rename" },
  export_md: { label: "Export Markdown" },
  export_json: { label: "Export JSON" },
  // Elsewhere
  goto: { label: "Go to the panel" },
  add: { label: "Compare one more", icon: "M8 3.5v9M3.5 8h9" },
  explain: { label: "Explain" },
  empty: { label: "Start empty", title: "Remove the restored turns here; undo brings them back" },
  cells: { label: "Use the cell's", title: "Set what the cell sets" },
  newer: { label: "Add here", title: "Add these turns in the order of asking" },
  close: { label: "Dismiss", icon: "M4 4l8 8M12 4l-8 8" },
  done: { label: "Copied", icon: "M3 8.5 6.5 12 13 4.5" },
};
const HEADER_BUTTONS = ["undo", "redo", "clear"];
const TURN_BUTTONS = ["regenerate", "edit"];
const MENU_BUTTONS = ["pin", "hide", "delete"]; // behind the button More
/** The fields of a turn that say whether a button of the turn's menu is pressed. */
const IS_ON = { pin: "is_pinned", hide: "is_hidden" };
const CONFIRMED_MS = 1500;
const SVG = "http://www.w3.org/2000/svg";

/** Make an icon; the button around it has the label. */
function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", BUTTONS[name].icon);
  svg.append(path);
  return svg;
}

/** Make a button; while its action is not allowed, it keeps the focus but does nothing. */
function buttonOf(kind, act, content) {
  const click = (event) => isAllowed(button) && act(event);
  const button = make("button", { type: "button", class: kind, click }, content);
  return button;
}

/** Make an icon button with the label of its row in `BUTTONS`, or with another label. */
function iconButton(name, act, words) {
  const { label, key } = BUTTONS[name];
  const button = buttonOf(`svc-icon svc-${name}`, act, icon(name));
  return named(button, words ?? (key ? `${label} (${key})` : label));
}

/** Make a button with the label of its row as its text. */
function textButton(name, act, kind) {
  const { label, title } = BUTTONS[name];
  const button = labelButton(label, act, kind);
  if (title) button.title = title;
  return button;
}

function labelButton(label, act, kind = "") {
  return buttonOf(`svc-button ${kind}`, act, label);
}

function named(button, label) {
  button.ariaLabel = button.title = label;
  return button;
}

function allow(button, isIt) {
  const isOff = String(!isIt);
  if (button.ariaDisabled !== isOff) button.ariaDisabled = isOff;
}

function isAllowed(button) {
  return button.ariaDisabled !== "true";
}

/** Make a button that copies a text and briefly confirms it. */
function copyButton(text, label = BUTTONS.copy.label) {
  let timer;
  const button = iconButton("copy", async () => {
    await copyText(text());
    show("done", BUTTONS.done.label);
    clearTimeout(timer);
    timer = setTimeout(() => show("copy", label), CONFIRMED_MS);
  }, label);
  const show = (name, words) => named(button, words).replaceChildren(icon(name));
  return button;
}

/** Copy with the clipboard, or through a selection if the page may not use the clipboard. */
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

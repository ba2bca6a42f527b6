/* The messages between browser and kernel: their types, and who takes those of the kernel.
 *
 * A test compares the types with panels/panel_actions.py, panels/view.py and panels/live_reply.py.
 * Comments do not travel to the page.
 */

/**
 * What the browser sends; `t` is the name of a row in panels/panel_actions.py.
 * @typedef {{t: "stop"}} StopAction
 * @typedef {{t: "decide", id: string, verdict: string, arguments: ?string}} DecideAction
 * @typedef {{t: "dismiss", name: string}} DismissAction removes the notice; with the name
 *   of a setting, also its refused value
 * @typedef {{t: "newer", on: boolean}} NewerAction adds what other kernels have asked
 *   meanwhile, or dismisses the note on it
 * @typedef {{t: "undo"}} UndoAction
 * @typedef {{t: "redo"}} RedoAction
 * @typedef {{t: "clear"}} ClearAction
 * @typedef {{t: "continue", turn: string}} ContinueAction
 * @typedef {{t: "regenerate", turn: string}} RegenerateAction
 * @typedef {{t: "delete", turn: string}} DeleteAction
 * @typedef {{t: "pin", turn: string}} PinAction
 * @typedef {{t: "hide", turn: string}} HideAction
 * @typedef {{t: "pick", turn: string, choice: number}} PickAction from 0
 * @typedef {{t: "choose", turn: string, version: number}} ChooseAction from 1
 * @typedef {{t: "prefer", turn: string, version: number}} PreferAction a column's version
 * @typedef {{t: "hello", seq: number, on: boolean}} HelloAction asks for the view if it has
 *   changed since `seq`; `on` where the style sheet can hide the static transcript
 * @typedef {{t: "send", text: string, attached: string[]}} SendAction with values of the
 *   notebook, by their names
 * @typedef {{t: "edit", turn: string, text: string, attached: string[],
 *   kept: string[]}} EditAction
 * @typedef {{t: "names", text: string}} NamesAction asks for names that contain this text
 * @typedef {{t: "size", name: string}} SizeAction asks how large a value is
 * @typedef {{t: "draft", id: string, text: string, n_attached: number}} DraftAction asks how
 *   large the next request is with the draft, and the tokens that are attached to it
 * @typedef {{t: "compare", name: string, value: ?string[], on: boolean}} CompareAction
 *   `name` is model, temperature or "" for nothing; null among the values is any other one
 * @typedef {{t: "dock"}} DockAction brings the sidecar to the front
 * @typedef {{t: "undock", name: string}} UndockAction says that the sidecar of this id was closed
 * @typedef {{t: "frame", turn: string, choice: number, table: number, name: string,
 *   on: boolean, id: string}} FrameAction makes a DataFrame of a table; `on`
 *   allows to replace a variable
 * @typedef {{t: "older"}} OlderAction asks for turns before the first one that is shown
 * @typedef {{t: "find", text: string}} FindAction asks for the list of conversations
 * @typedef {{t: "open", name: string}} OpenAction
 * @typedef {{t: "new"}} NewAction
 * @typedef {{t: "remove", name: string}} RemoveAction deletes a conversation
 * @typedef {{t: "rename", name: string}} RenameAction
 * @typedef {{t: "export", name: string, id: string}} ExportAction as md or json
 * @typedef {{t: "set", name: string, value: *}} SetAction
 * @typedef {{t: "enter", on: boolean}} EnterAction
 */

/**
 * What the kernel sends; each message also has `seq`, its place among messages and views.
 * @typedef {{t: "ack", subshell: boolean}} AckMessage answers hello
 * @typedef {{t: "live", live: Live}} LiveMessage a tool call of a reply begins or ends
 * @typedef {{t: "delta", choice: number, html: string, tail: string,
 *   n_back: number, n_same: number}} DeltaMessage the blocks replace the last `n_back`, pieces
 *   of them; before `tail` stay `n_same` characters (not UTF-16 units) of the tail so far
 * @typedef {{t: "column", choice: number, column: Column}} ColumnMessage
 * @typedef {{t: "status", text: string, until_ms: ?number}} StatusMessage
 * @typedef {{t: "ended", text: string}} EndedMessage
 * @typedef {{t: "stepped", text: string}} SteppedMessage says which change was undone or redone
 * @typedef {{t: "front"}} FrontMessage the cell of a docked panel has run again
 * @typedef {{t: "problem", text: string}} ProblemMessage
 * @typedef {{t: "names", text: string, offers: Offer[], is_all: boolean}} NamesMessage
 * @typedef {{t: "size", name: string, kind: string, n_tokens: number,
 *   problem: string}} SizeMessage of a value as it would be sent
 * @typedef {{t: "meter", id: string, meter: Meter}} MeterMessage answers a draft
 * @typedef {{t: "framed", id: string, name: string, text: string, problem: string,
 *   is_taken: boolean, code: string}} FramedMessage
 * @typedef {{t: "heard", kind: string}} HeardMessage an action was handled or refused
 * @typedef {{t: "found", search: string, rows: Listed[], n_more: number}} FoundMessage
 * @typedef {{name: string, n_turns: number, models: string[], asked_at: string,
 *   prompt: string, is_elsewhere: boolean}} Listed a conversation of the ledger; `is_elsewhere`
 *   if another panel of the kernel has it open
 * @typedef {{t: "file", id: string, name: string, kind: string, text: string}} FileMessage
 */

/**
 * The view, which the kernel sends as the trait `view`; after the first time only fields
 * and turns that have changed.
 * @typedef {{panel_id: string, sidecar_id: string, call: string, name: string, label: string, state: string,
 *   main_writes: number, turns: Turn[], n_turns: number, n_older: number, live: ?Live, can: string[],
 *   meter: Meter, notice: string, is_problem: boolean, is_restored: boolean, cells: object, newer: string, settings: object, unusable: object, refused: object, fields: Field[],
 *   send_on_enter: boolean, compare: Compare, tools: string[], ask: ?Question, is_whole: boolean, nth: number,
 *   seq: number, is_new: boolean}} View `is_new` if the panel was opened now, false after a reload
 * @typedef {{id: string, number: number, prompt: string, whole: string, attached: Attached[], model: string,
 *   choices: Choice[],
 *   picked: number, ended: string, footer: string, system: string, badges: string[], tool_runs: ToolRun[],
 *   version: string, previous: number, next: number, n_versions: number, is_pinned: boolean, is_hidden: boolean,
 *   is_stale: boolean, columns: Column[], can: string[]}} Turn
 *   `whole` is the line that opens a long prompt; the arrows choose `previous` and `next`, if not 0
 * @typedef {{html: string, text: string}} Choice
 * @typedef {{name: string, kind: string, n_tokens: number, html: string}} Attached
 * @typedef {{name: string, kind: string, size: string, start: string}} Offer `start` of a cell's code
 * @typedef {{name: string, line: string, unanswered: string, html: string, is_error: boolean}} ToolRun
 *   `unanswered` is the line if the kernel ends before the call has a result
 * @typedef {{turn: string, asker: string, prompt: ?string, whole: string, attached: ?Attached[], model: string,
 *   choices: LiveChoice[], status: string, tool_runs: ToolRun[], columns: Column[]}} Live
 * @typedef {{label: string, version: number, problem: string, footer: string,
 *   first_text_s: ?number, marks: string[], is_picked: boolean, is_used: boolean,
 *   status: string, until_ms: ?number}} Column of a
 *   choice, where replies are compared
 * @typedef {{by: string, values: string[], is_blind: boolean, options: string[],
 *   max_values: number, cost: string, refusal: string}} Compare
 * @typedef {{html: string, tail: string}} LiveChoice
 * @typedef {{used_tokens: number, budget_tokens: ?number, text: string}} Meter
 * @typedef {{name: string, kind: string, default: string, label: string, help: string,
 *   minimum: ?number, maximum: ?number, step: ?number, options: ?string[]}} Field
 * @typedef {{id: string, name: string, arguments: string, how_to_edit: string, about: string, problem: string,
 *   typed: string}} Question `typed` are the changed arguments that do not fit, `problem` says why
 */

/** The function that handles each kind of message from the kernel. */
const TAKE = {
  ack: (connection, message) => connection.takeAck(message),
  live: (connection, message) => connection.takeLive(message.live),
  delta: (connection, message) => connection.takeDelta(message),
  column: (connection, message) => connection.takeColumn(message),
  status: (connection, message) => connection.takeStatus(message),
  ended: (connection, message) => connection.takeEnd(message),
  front: (connection) => connection.views.forEach(({ side }) => side.toFront()),
  stepped: (connection, { text }) => connection.views.forEach((view) => view.tellBriefly(text)),
  problem: (connection, message) => connection.takeProblem(message),
  heard: (connection, message) => connection.takeHeard(message),
  found: (connection, message) => connection.views.forEach((view) => view.conversations.take(message)),
  file: (connection, message) => connection.views.forEach((view) => view.conversations.save(message)),
  framed: (connection, message) => connection.views.forEach((view) => view.takeFrame(message)),
  meter: (connection, message) => connection.drafts.takeMeter(message),
  names: (connection, message) => connection.attaches((menu) => menu.take(message)),
  size: (connection, message) =>
    connection.attaches((menu) => {
      menu.takeSize(message);
      menu.holder.takeSize?.(message);
    }),
};

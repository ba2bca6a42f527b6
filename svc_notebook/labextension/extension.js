/* The extension of JupyterLab and Notebook 7: prompts in colour and wrapped, code put into cells,
 * a side area that is wide enough for a chat.
 *
 * A module of a federation, written by hand: JupyterLab loads this script, gives it the modules
 * that it shares (`init`), and asks for its plugins (`get`). Nothing is built or bundled. The file
 * is not in a folder named `static`: what is there, browsers keep for a year without asking.
 */

(() => {
  // Not what Markdown cells have, "text/x-ipythongfm": between $5 and $6 it sees a formula.
  const MARKDOWN = "text/x-markdown";
  const PYTHON = "text/x-ipython"; // what IPython kernels say their cells are
  const INSERT_BELOW = "svc-notebook:insert-below"; // a command, and the event that asks for it
  const REPLACE_CELL = "svc-notebook:replace-cell";
  const OURS = "svc_notebook"; // a payload of the kernel, and our key in metadata

  // The line below a reply that is still being written; a model's text is escaped.
  const LIVE = /<span class=svc-live>.*?<\/span>(?=<\/div>)/gs;
  const STOPPING = ["restarting", "autorestarting", "terminating", "dead"]; // kernels
  const CUT_OFF =
    "cut off: the kernel stopped · run the cell again to ask anew; what was recorded is in " +
    '<code>svc.replies_df(scope="all")</code>';
  const ELSEWHERE =
    "the rest is not shown: the page was opened or reloaded meanwhile · the newest reply is in " +
    '<code>svc.last()</code>, all are in <code>svc.replies_df(scope="all")</code>';

  const DOCKED = "svc-notebook:docked"; // the event of a panel that is in the side area
  const SIDE_PX = 400;
  const SIDE_SHARE = 0.4; // of the window, at most; and it is never wider than the notebook
  const SIDE_STATE = "svc-notebook:side-area"; // kept in the workspace, as the width is
  const SIDE_TABS = "svc-notebook:side-tabs"; // kept in the browser's tab, over a reload

  const PROMPT = /^\s*%%svc(?!\S)/;
  const RAW = /\s--raw(?!\S)/; // nothing is put in for `{{name}}`
  const NAME = String.raw`[\p{ID_Start}_]\p{ID_Continue}*`;
  const INDEX = String.raw`\[(?:${NAME}|-?\d+(?:\.\d+)?|'[^'{}]*'|"[^"{}]*")\]`;
  const MARK = new RegExp(
    String.raw`(?<!\\)\{\{\s*${NAME}(?:\.${NAME}|${INDEX})*\s*\}\}`,
    "gu",
  );

  let shared;

  /** Import the one version of a module that all of the page uses, by webpack's rule. */
  const use = async (name) => {
    const versions = Object.entries(shared[name]);
    const byVersion = (one, other) => other[0].localeCompare(one[0], "en", { numeric: true });
    const loaded = versions.find(([, entry]) => entry.loaded);
    const [, entry] = loaded ?? versions.sort(byVersion)[0];
    entry.loaded = 1; // those who come later take this one, too
    return (await entry.get())();
  };

  /** Return the first line that is not blank: a `%%svc` there makes the cell a prompt. */
  const optionsLine = (doc) => {
    for (let number = 1; number < doc.lines; number += 1) {
      const line = doc.line(number);
      if (line.text.trim()) return line;
    }
    return doc.line(doc.lines);
  };

  /** Say what a cell is, by the language of its kernel and its first line. */
  const kindOf = (model, doc) => {
    const { text } = optionsLine(doc);
    if (model.mimeType !== PYTHON || !PROMPT.test(text)) return "code";
    return RAW.test(text) ? "raw prompt" : "prompt";
  };

  /** Make what an editor of a code cell needs: colours that follow its first line.
   *
   * The model's MIME type stays as it is, so that nothing else in the page takes the cell for
   * something other than code. Only the parser changes, and no key does something else.
   */
  const promptColours = (state, view, languages) => {
    const { Compartment, EditorState, Prec } = state;
    const { Decoration, EditorView, MatchDecorator, ViewPlugin } = view;

    const mark = (className) => Decoration.mark({ class: className });
    const matcher = new MatchDecorator({ regexp: MARK, decoration: mark("svc-mark") });
    const marks = ViewPlugin.define(
      (editor) => ({
        decorations: matcher.createDeco(editor),
        update(change) {
          this.decorations = matcher.updateDeco(change, this.decorations);
        },
      }),
      { decorations: (plugin) => plugin.decorations },
    );
    const options = EditorView.decorations.compute(["doc"], ({ doc }) => {
      const { from, to } = optionsLine(doc);
      return from < to ? Decoration.set(mark("svc-options").range(from, to)) : Decoration.none;
    });
    const theme = EditorView.baseTheme({
      ".svc-options, .svc-options *": {
        color: "var(--jp-mirror-editor-keyword-color)",
        fontStyle: "normal",
        fontWeight: "normal",
        textDecoration: "none",
      },
      // The page does not know whether the kernel has the name, so this is no variable's colour:
      // a place that will be filled in, or whose name is refused before anything is sent.
      ".svc-mark": {
        backgroundColor: "color-mix(in srgb, currentColor 10%, transparent)",
        borderBottom: "1px dotted currentColor",
      },
      ".svc-mark, .svc-mark *": {
        color: "var(--jp-content-font-color1)",
        textDecoration: "none",
      },
    });
    // the key that turns lines into comments: as in code, where it switches a cell off
    const comments = EditorState.languageData.of(() => [{ commentTokens: { line: "#" } }]);

    const extensions = async (kind) => {
      if (kind === "code") return [];
      const { support } = await languages.getLanguage(MARKDOWN);
      const prompt = [Prec.high([comments, support.language]), EditorView.lineWrapping, options];
      return kind === "prompt" ? [...prompt, marks] : prompt;
    };

    return (model) => {
      const colours = new Compartment();
      const follow = ViewPlugin.define((editor) => {
        let kind = "code";
        const look = async () => {
          const before = kind;
          kind = kindOf(model, editor.state.doc);
          if (kind === before) return;
          const wanted = kind;
          const effects = colours.reconfigure(await extensions(wanted));
          if (kind === wanted) editor.dispatch({ effects });
        };
        model.mimeTypeChanged.connect(look);
        look();
        return {
          update: (change) => change.docChanged && look(),
          destroy: () => {
            kind = "closed";
            model.mimeTypeChanged.disconnect(look);
          },
        };
      });
      return [colours.of([]), follow, theme];
    };
  };

  /** Find the notebook in use; for a panel of another one, that one if it is in sight. */
  const notebookOf = (tracker, path) => {
    const { currentWidget } = tracker;
    if (!path || currentWidget?.context.path === path) return currentWidget;
    return tracker.find(({ context, isVisible }) => isVisible && context.path === path);
  };

  /** Find the notebook and the cell that show an element; else those in use. */
  const placeOf = (tracker, element, path) => {
    let place = null;
    tracker.forEach(({ content }) => {
      const index = content.widgets.findIndex((cell) => cell.node.contains(element ?? null));
      if (index >= 0) place = { content, index, isShown: true };
    });
    const content = notebookOf(tracker, path)?.content;
    return place ?? (content && { content, index: content.activeCellIndex });
  };

  /** Whether a cell neither ran nor is about to. */
  const isUnrun = ({ model, promptNode }) =>
    model.executionCount === null &&
    model.executionState !== "running" &&
    !promptNode?.textContent.includes("*"); // older versions have no such state

  const isEmpty = (cell) =>
    cell?.model.type === "code" && !cell.model.sharedModel.getSource().trim() && isUnrun(cell);

  /** Return what a cell of ours has noted at one that it put below itself. */
  const markOf = (cell) => cell?.model.getMetadata(OURS);

  /** Put a text into a code cell below, without running it; say whether it could.
   *
   * An empty cell takes it, such as the one that Shift+Enter makes: the one below, or the one in
   * use if no cell shows the element. Below a cell that shows it, the texts stand in the order in
   * which they came.
   */
  const insertBelow = (tracker, { source, element, path } = {}) => {
    const { content, index, isShown } = placeOf(tracker, element, path) ?? {};
    if (typeof source !== "string" || !content?.model || content.model.readOnly) return false;
    const cells = content.widgets;
    const mark = isShown && { inserted_from: cells[index].model.id };
    const isOfSame = (cell) => mark && markOf(cell)?.inserted_from === mark.inserted_from;
    let at = !isShown && isEmpty(cells[index]) ? index : index + 1;
    while (isOfSame(cells[at]) && !isEmpty(cells[at])) at += 1;
    if (isEmpty(cells[at])) {
      cells[at].model.sharedModel.setSource(source);
      if (mark) cells[at].model.setMetadata(OURS, mark);
    } else {
      const metadata = { trusted: false, ...(mark && { [OURS]: mark }) };
      content.model.sharedModel.insertCell(at, { cell_type: "code", source, metadata });
    }
    content.deselectAll();
    content.activeCellIndex = at;
    content.scrollToItem(at).catch(() => {}); // the notebook was closed meanwhile
    return true;
  };

  /** Return a number that shows whether a text was edited. */
  const digestOf = (text) =>
    [...text].reduce((sum, letter) => (Math.imul(sum, 31) + letter.codePointAt(0)) | 0, 0);

  /** See to it that the code which a cell of ours put below itself is there once.
   *
   * JupyterLab itself inserts it the first time, as it does for any cell that asks for it.
   */
  const settleNextCell = async (notebook, cell) => {
    const reply = await cell.outputArea?.future?.done.catch(() => {});
    const asked = reply?.content.payload?.find(({ source }) => source === OURS);
    const first = notebook.widgets.indexOf(cell) + 1;
    if (!asked || !first || notebook.model.readOnly) return;
    const { text, is_new, said, found } = asked;
    const { sharedModel } = notebook.model;
    const sourceOf = (at) => notebook.widgets[at]?.model.sharedModel.getSource();
    const markAt = (at) => markOf(notebook.widgets[at]);
    const inserted_from = cell.model.id;
    const mark = { inserted_from, digest: digestOf(text) };

    const isInserted = is_new && sourceOf(first) === text;
    const next = first + isInserted;
    let last = next; // below the cells that this one has put there
    while (markAt(last)?.inserted_from === inserted_from) last += 1;
    let same = next;
    while (same <= last && sourceOf(same) !== text) same += 1;
    const isLeft = () =>
      next < last && isUnrun(notebook.widgets[next]) && markAt(next).digest === digestOf(sourceOf(next));

    const isChanged = notebook.widgets.slice(next, last).some((put) => markOf(put).digest === mark.digest);

    let what = "inserted";
    if (same > last && isChanged) {
      what = "changed";
    } else if (same <= last) {
      what = same === next ? "next" : "below";
    } else if (isLeft()) {
      what = "replaced";
      const { model } = notebook.widgets[next];
      model.sharedModel.setSource(text);
      model.setMetadata(OURS, mark);
    } else if (isInserted) {
      notebook.widgets[first].model.setMetadata(OURS, mark);
    } else {
      const metadata = { trusted: false, [OURS]: mark };
      sharedModel.insertCell(first, { cell_type: "code", source: text, metadata });
    }
    if (isInserted && what !== "inserted") sharedModel.deleteCell(first);
    correct(cell.model.outputs, said, found[what]);
  };

  /** Put words in place of others, where the outputs of a cell have them last. */
  const correct = (outputs, said, words) => {
    for (let at = outputs.length - 1; at >= 0; at -= 1) {
      const output = outputs.get(at).toJSON();
      const texts = output.data ?? output; // of a display, or of a stream
      const changed = Object.keys(texts).filter((key) => `${texts[key]}`.includes(said));
      for (const key of changed) {
        const from = texts[key].lastIndexOf(said);
        texts[key] = texts[key].slice(0, from) + words + texts[key].slice(from + said.length);
      }
      if (changed.length && said !== words) outputs.set(at, output);
      if (changed.length) return;
    }
  };

  /** Put words below the replies of a notebook that nobody writes any more.
   *
   * An idle kernel writes nothing more to the cells that this page does not run itself. An older
   * front end does not say which it runs; there the line stays as it was.
   */
  const endReplies = ({ model }, words) => {
    for (const { outputs, executionState } of model?.cells ?? []) {
      if (words === ELSEWHERE && executionState !== "idle") continue;
      for (let at = 0; at < (outputs?.length ?? 0); at += 1) {
        const html = `${outputs.get(at).data?.["text/html"] ?? ""}`;
        const ended = html.replace(LIVE, words);
        if (ended === html) continue;
        const output = outputs.get(at).toJSON();
        output.data["text/html"] = ended;
        outputs.set(at, output);
      }
    }
  };

  /** Keep an output of a panel where the front end does not: it forgets display ids with the page.
   *
   * The front end comes first. What it has shown itself is here by then, and stays as it is. If
   * another page has asked, that one has it to save. Pages that edit a notebook together would each
   * add the same.
   */
  const keepOutput = ({ model }, { header, content }, { isSame, isOfOther }) => {
    const id = content.metadata?.[OURS];
    if (!id || !/^(update_)?display_data$/.test(header.msg_type) || model.collaborative) return;
    const { data, metadata } = content;
    const output = { output_type: "display_data", data, metadata };
    const { dirty } = model;
    const idAbove = id.replace(/\d+$/, (number) => number - 1);
    let isKept = false;
    let outputsAbove;
    for (const { outputs } of model.cells) {
      for (let at = 0; at < (outputs?.length ?? 0); at += 1) {
        const kept = outputs.get(at);
        const idKept = kept.metadata[OURS];
        if (idKept === idAbove) outputsAbove = outputs;
        if (idKept !== id) continue;
        isKept = true;
        if (!isSame(kept.data, data)) outputs.set(at, output);
      }
    }
    if (!isKept) outputsAbove?.add(output);
    if (isOfOther) model.dirty = dirty;
  };

  /** Put a text in place of a cell's; say whether it could. */
  const replaceCell = (tracker, { source, element } = {}) => {
    const { content, index } = placeOf(tracker, element) ?? {};
    const cell = content?.widgets[index];
    if (typeof source !== "string" || !cell || content.model.readOnly || cell.readOnly) return false;
    cell.model.sharedModel.setSource(source);
    return true;
  };

  /** Give the right side area the width that a chat needs and the window allows, as a drag would. */
  const fitSideArea = (shell) => {
    let [split] = shell.widgets("right");
    while (split && split.id !== "jp-main-split-panel") split = split.parent;
    const isShown = (panel) => panel.checkVisibility();
    const chat = [...document.querySelectorAll(".jupyterlab-sidecar .svc-panel")].find(isShown);
    const at = chat && split?.widgets.findIndex(({ node }) => node.contains(chat));
    if (!at || at !== split.widgets.length - 1) return; // the user has moved it to the left
    const [main_px, side_px] = split.widgets.slice(-2).map(({ node }) => node.offsetWidth);
    const most_px = Math.min(SIDE_SHARE * innerWidth, (main_px + side_px) / 2);
    const fit_px = Math.min(Math.max(side_px, SIDE_PX), most_px);
    const edge = split.handles[at - 1];
    if (side_px !== fit_px) split.layout.moveHandle(at - 1, edge.offsetLeft + side_px - fit_px);
  };

  /** Keep the tabs of docked panels in order over a reload, and the same one in front.
   *
   * A panel that comes back puts itself last and in front.
   */
  const keepSideTabs = (shell) => {
    const panels = new Map(); // by the ids of their sidecars, which outlive the page
    const left = JSON.parse(sessionStorage.getItem(SIDE_TABS) ?? "{}");
    const { tabs = [] } = left;
    let { front } = left; // a panel or another tool, "" if the area was closed; until the user chooses
    const inFront = () => [...shell.widgets("right")].find(({ isVisible }) => isVisible)?.id ?? "";
    const bring = (id) => (id ? shell.activateById(panels.get(id)?.id ?? id) : shell.collapseRight());
    const choose = () => {
      front = undefined;
    };

    document.addEventListener(DOCKED, ({ target, detail: { sidecar } }) => {
      const panel = [...shell.widgets("right")].find(({ node }) => node.contains(target));
      if (!panel) return; // the user has moved it to the left
      panels.set(sidecar, panel);
      if (!tabs.includes(sidecar)) {
        tabs.push(sidecar);
        return choose();
      }
      const shown = inFront();
      const ordered = tabs.map((id) => panels.get(id)).filter((panel) => panel?.isAttached);
      const found = [...shell.widgets("right")].filter((panel) => ordered.includes(panel));
      if (found.some((panel, at) => panel !== ordered[at])) {
        for (const panel of ordered) shell.add(panel, "right");
        bring(shown);
      }
      if (front !== undefined) bring(front);
    });
    const isTab = ({ target }) => target.closest?.(".jp-SideBar.jp-mod-right");
    document.addEventListener("pointerdown", (event) => isTab(event) && choose(), { capture: true });
    window.addEventListener("pagehide", () => {
      const isAwaited = tabs.includes(front) && !panels.has(front);
      const shown = inFront();
      if (!isAwaited) front = tabs.find((id) => panels.get(id)?.id === shown) ?? shown;
      if (tabs.length) sessionStorage.setItem(SIDE_TABS, JSON.stringify({ tabs, front }));
    });
  };

  /** Whether a drag begins at the edge of the right side area. */
  const isSideEdge = ({ target }) => {
    const edge = target.closest?.("#jp-main-split-panel > .lm-SplitPanel-handle");
    return Boolean(edge?.nextElementSibling?.matches(":has(#jp-right-stack), #jp-right-stack"));
  };

  const plugins = async () => {
    const [codemirror, notebook, statedb, coreutils, state, view] = await Promise.all(
      [
        "@jupyterlab/codemirror",
        "@jupyterlab/notebook",
        "@jupyterlab/statedb",
        "@lumino/coreutils",
        "@codemirror/state",
        "@codemirror/view",
      ].map(use),
    );
    const { EditorExtensionRegistry, IEditorExtensionRegistry, IEditorLanguageRegistry } = codemirror;
    const isSame = coreutils.JSONExt.deepEqual;

    return [
      {
        id: "svc-notebook:prompt-colours",
        description: "Colours the prompts of %%svc as Markdown.",
        autoStart: true,
        requires: [IEditorExtensionRegistry, IEditorLanguageRegistry],
        activate: (app, registry, languages) => {
          const coloursOf = promptColours(state, view, languages);
          registry.addExtension({
            name: "svc-notebook-prompt",
            factory: ({ model }) =>
              model.type === "code"
                ? EditorExtensionRegistry.createImmutableExtension(coloursOf(model))
                : null,
          });
        },
      },
      {
        id: "svc-notebook:cells",
        description:
          "Puts code of replies into cells, never runs it; keeps outputs when kernel or page change.",
        autoStart: true,
        requires: [notebook.INotebookTracker],
        activate: (app, tracker) => {
          app.commands.addCommand(INSERT_BELOW, {
            label: "Insert as a Cell Below",
            execute: (args) => insertBelow(tracker, args),
          });
          app.commands.addCommand(REPLACE_CELL, {
            label: "Replace the Text of the Cell",
            execute: (args) => replaceCell(tracker, args),
          });
          notebook.NotebookActions.executed.connect((_, { notebook: content, cell, success }) => {
            if (success) settleNextCell(content, cell);
          });
          tracker.widgetAdded.connect((_, { content, sessionContext }) => {
            const openedAt = Date.now();
            sessionContext.statusChanged.connect((_, status) => {
              if (STOPPING.includes(status)) endReplies(content, CUT_OFF);
              else if (status === "idle") endReplies(content, ELSEWHERE);
            });
            sessionContext.iopubMessage.connect(({ session }, message) => {
              const { session: asker, date } = message.parent_header;
              const isOfOther = asker !== session?.kernel?.clientId && Date.parse(date) > openedAt;
              keepOutput(content, message, { isSame, isOfOther });
            });
            sessionContext.kernelChanged.connect((_, { oldValue }) => {
              if (oldValue) endReplies(content, CUT_OFF);
            });
          });
          // A panel cannot reach commands. It learns from the event whether somebody answered.
          document.addEventListener(INSERT_BELOW, (event) => {
            const detail = event.detail ?? {};
            if (insertBelow(tracker, detail)) event.preventDefault();
            else detail.isElsewhere = !placeOf(tracker, detail.element, detail.path);
          });
        },
      },
      {
        id: "svc-notebook:side-area",
        description:
          "Fits the side area to a chat and to the window, until the user drags its edge; keeps its tabs.",
        autoStart: true,
        requires: [statedb.IStateDB],
        activate: ({ shell }, states) => {
          const fit = async () => {
            const { isWidthChosen = false } = (await states.fetch(SIDE_STATE)) ?? {};
            if (!isWidthChosen) fitSideArea(shell);
          };
          document.addEventListener(DOCKED, fit);
          // not the window's event, which comes before JupyterLab has moved anything
          new ResizeObserver(fit).observe(shell.node);
          const choose = (event) => isSideEdge(event) && states.save(SIDE_STATE, { isWidthChosen: true });
          document.addEventListener("pointerdown", choose, { capture: true });
          keepSideTabs(shell);
        },
      },
    ];
  };

  window._JUPYTERLAB ??= {};
  window._JUPYTERLAB["svc-notebook"] = {
    init: (scope) => {
      shared = scope;
    },
    get: async () => {
      const made = await plugins();
      return () => ({ __esModule: true, default: made });
    },
  };
})();

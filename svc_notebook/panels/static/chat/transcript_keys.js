/* The keys of the transcript, which is one stop of the Tab key: arrows move among its turns,
 * and among the links and buttons of a turn.
 */

const ARROW_WORDS = "↑ ↓ turns, ← → buttons, Page Up, End, Esc";
const UP_DOWN = { ArrowUp: -1, ArrowDown: 1 };
const LEFT_RIGHT = { ArrowLeft: -1, ArrowRight: 1 };
const SCROLLERS = "pre, div:has(> table), mjx-container, p:has(mjx-container)";
const CONTROLS = `a[href], button, summary, ${SCROLLERS}`;
const FORMS = ".svc-editing, .svc-frame, .svc-empty"; // Tab goes through these
const PART_OF_WIDTH = 0.8; // that an arrow scrolls, since long lines are slow to pass otherwise

class TranscriptKeys {
  constructor(panel) {
    const { log, content } = panel;
    Object.assign(this, { panel, log });
    const words = make("span", { id: `${panel.id}-keys`, hidden: "" }, ARROW_WORDS);
    log.setAttribute("aria-describedby", words.id);
    log.after(words);
    for (const type of ["focusin", "focusout"]) {
      log.addEventListener(type, () => panel.composer.drawPlaceholder());
    }
    log.addEventListener("keydown", (event) => this.key(event));
    leaveOut(content);
    this.added = new MutationObserver((records) => {
      for (const { addedNodes } of records) for (const node of addedNodes) leaveOut(node);
    });
    this.added.observe(content, { childList: true, subtree: true });
  }

  remove() {
    this.added.disconnect();
  }

  /** Whether the keyboard is in the transcript, but not in a form of it. */
  get isNeeded() {
    const { activeElement: focused } = document;
    return this.log.contains(focused) && focused.matches(":focus-visible") && !focused.closest(FORMS);
  }

  key(event) {
    const { key, target } = event;
    if (isInput(event) || event.defaultPrevented || !hasNoModifier(event)) return;
    if (target.closest(FORMS)) return;
    const side = LEFT_RIGHT[key];
    const next = this.nextTurn(UP_DOWN[key]) ?? this.nextControl(side, target);
    if (side && canScroll(target, side)) {
      event.preventDefault();
      target.scrollBy({ left: side * PART_OF_WIDTH * target.clientWidth });
    } else if (next) {
      event.preventDefault();
      next.focus({ preventScroll: true });
      showWhole(next);
    }
  }

  /** Return the turn to go to; none while there is more of this turn to scroll to. */
  nextTurn(by) {
    if (!by) return null;
    const turns = [...this.log.querySelectorAll(".svc-turn")];
    if (!this.panel.olderRow.hidden) turns.unshift(this.panel.older);
    const log = this.log.getBoundingClientRect();
    const isInSight = ({ top, bottom }) => bottom > log.top + 1 && top < log.bottom - 1;
    const boxes = turns.map((turn) => turn.getBoundingClientRect());
    const at = turns.findIndex((turn) => turn.contains(document.activeElement));
    if (at < 0 || !isInSight(boxes[at])) {
      return by < 0 ? turns[boxes.findLastIndex(isInSight)] : turns[boxes.findIndex(isInSight)];
    }
    const isMore = by < 0 ? boxes[at].top < log.top - 1 : boxes[at].bottom > log.bottom + 1;
    return isMore ? null : turns[at + by];
  }

  /** Return the control to go to; from the transcript, one of the newest turn in sight. */
  nextControl(by, target) {
    const isLog = target === this.log;
    const turn = isLog ? this.nextTurn(-1) : target.closest(".svc-turn");
    if (!by || !turn) return null;
    const controls = [...turn.querySelectorAll(CONTROLS)].filter(isReachable);
    const at = (isLog && by < 0 ? controls.length : controls.indexOf(target)) + by;
    return at < 0 ? turn : controls[at];
  }
}

/** Leave an element and its controls out of the order of the Tab key. */
function leaveOut(node) {
  if (node.nodeType !== 1) return;
  const stops = `${CONTROLS}, [tabindex]`;
  const formula = node.parentElement?.closest(".svc-turn p"); // it scrolls if a formula is wide
  for (const part of [formula, node, ...node.querySelectorAll(stops)]) {
    if (part?.matches(stops) && !part.closest(FORMS)) part.tabIndex = -1;
  }
}

function isReachable(control) {
  if (control.closest(FORMS) || !control.checkVisibility()) return false;
  return !control.matches(SCROLLERS) || control.scrollWidth > control.clientWidth;
}

function canScroll(control, by) {
  const { scrollLeft, scrollWidth, clientWidth } = control;
  if (!control.matches(SCROLLERS)) return false;
  return by < 0 ? scrollLeft > 0 : scrollLeft + clientWidth < scrollWidth - 1;
}

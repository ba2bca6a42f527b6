/* A panel in JupyterLab's side area: its cell then shows one line.
 *
 * The kernel opens a sidecar, which shows another view of the panel. A view that is in no cell
 * is the view in the side area. There the panel names its notebook, which may not be in front.
 */

const DOCKED = "svc-notebook:docked"; // heard by other panels, and by the extension that widens the area
const IN_SIDE = "The panel is in the side area.";
const NOT_IN_SIDE =
  "The panel is in this cell: the side area needs JupyterLab, with the package sidecar installed where it runs.";
const DOCKING_MS = 4000; // until then a sidecar may still open

class SideArea {
  constructor(panel) {
    this.panel = panel;
    this.madeAt_ms = performance.now();
    this.sidecar = ""; // the id of the sidecar that this view is in
    const go = textButton("goto", () => this.go());
    this.line = div("svc-away-line", make("span", {}, IN_SIDE), go);
    const { signal } = panel.gone;
    document.addEventListener(DOCKED, ({ detail }) => this.giveWay(detail), { signal });
    panel.root.addEventListener(INSERT_EVENT, ({ detail }) => this.sign(detail));
    this.drawTab = () => this.titleTab();
  }

  get manager() {
    return this.panel.connection.model.widget_manager;
  }

  /** The notebook of the panel, without its folder, as it is called now; "" if unknown. */
  get notebook() {
    const path = this.manager?.context?.localPath ?? "";
    return path.split("/").at(-1).replace(/\.ipynb$/, "");
  }

  /** Add the notebook to the request for a cell, which may come from outside it. */
  sign(detail) {
    detail.path = this.manager?.context?.path;
    detail.notebook = this.notebook;
  }

  /** The view of this panel that is in the side area. */
  get docked() {
    return [...this.panel.connection.views].find(({ side }) => side?.sidecar && side.isThere)?.side;
  }

  get isThere() {
    return this.panel.root.isConnected;
  }

  get isVisible() {
    return this.isThere && this.panel.root.checkVisibility();
  }

  /** Find out, once this view is on the page, whether it is in the side area. */
  note() {
    const { root, connection } = this.panel;
    if (this.isPlaced || !root.isConnected) return;
    this.isPlaced = true;
    const { sidecar_id: sidecar = "" } = connection.view;
    if (!sidecar || !root.closest(".jupyterlab-sidecar")) return;
    this.sidecar = sidecar;
    this.manager.context?.pathChanged.connect(this.drawTab);
    root.dispatchEvent(new CustomEvent(DOCKED, { detail: this, bubbles: true }));
    connection.draw();
  }

  /** Come to the front: the panel's cell has run again. */
  toFront() {
    if (this.sidecar && !this.isVisible) this.panel.send("dock");
  }

  draw() {
    const { root, connection } = this.panel;
    this.note();
    if (this.sidecar && connection.isUnanswered) this.close(); // only saved widget state
    if (this.sidecar) this.drawTab();
    root.classList.toggle("svc-away", !this.sidecar && Boolean(this.docked));
  }

  get isNamed() {
    const { label, name } = this.panel.view;
    return label === `Conversation ${name}`; // a new one has no name
  }

  /** Name the conversation and the notebook in the tab, which sidecar writes only once. */
  async titleTab() {
    const { label, name } = this.panel.view;
    const title = [this.isNamed ? name : label, this.notebook].filter(Boolean).join(" - ");
    if (!isNew(this, "title", title)) return;
    try {
      const { views } = await this.manager.get_model(this.sidecar);
      for (const view of Object.values(views)) (await view)._outputView.title.label = title;
    } catch {
      // the tab is gone, or keeps its first title
    }
  }

  /** Whether a sidecar that the kernel opened is not on the page yet. */
  get isMissing() {
    const { view, isPlaceSeen } = this.panel.connection;
    if (!view.sidecar_id || isPlaceSeen || this.docked) return false;
    return performance.now() - this.madeAt_ms > DOCKING_MS;
  }

  /** Say what to do after the kernel has ended; the cell of a docked panel may be out of sight. */
  restarted() {
    if (!this.sidecar) return make("span", {}, RESTARTED);
    const call = make("code", {}, this.panel.view.call);
    return make("span", {}, `${ENDED}. To go on, run the cell with `, call, " again.");
  }

  /** Bring the panel in the side area to the front, and go to it. */
  go() {
    if (this.docked?.isVisible) this.docked.panel.composer.focus();
    else this.panel.send("dock");
  }

  /** Close this view if its kernel has ended and another panel opens in the side area. */
  giveWay(other) {
    if (other !== this && this.sidecar && this.panel.connection.isDead) this.close();
  }

  /** Close the sidecar of this view, without the kernel. */
  async close() {
    const { sidecar } = this;
    this.sidecar = "";
    try {
      const model = await this.manager.get_model(sidecar);
      await model.close(true);
    } catch {
      // the page has no such sidecar any more
    }
  }

  /** After the view has gone, show the panel in the cell, unless another sidecar is open. */
  remove() {
    const { connection } = this.panel;
    if (!this.sidecar) return;
    this.manager.context?.pathChanged.disconnect(this.drawTab);
    if (this.sidecar === connection.view.sidecar_id) connection.send({ t: "undock", name: this.sidecar });
    connection.draw();
  }
}

// A pane: one edge, perhaps over another, as a picture and as a table of what is in view.
import { count, counted, make, writePayload } from "./dom.js";
import { changesBetween, Comparison } from "./model.js";
import { AXIS, GUTTER, Layout, Picture } from "./timeline.js";
import { toNumber } from "./times.js";

const MOST_IN_TABLE = 200;
const FEW = 60;

/** One edge on the page. `app` is what the panes share: the moment, the view, what is selected. */
export class Pane {
  constructor(app, edge) {
    this.app = app;
    this.edge = edge;
    this.other = null;
    this.laneColumn = defaultLanes(edge);
    this.pictures = [];
    this.layouts = new Map();
    this.build();
  }

  build() {
    const { edge, app } = this;
    const id = `pane-${edge.id.replace(":", "-")}`;
    this.summary = make("span", { class: "summary" });
    this.hover = make("output", { class: "hover", "aria-live": "off" });
    this.lanes = make("select", { change: () => { this.laneColumn = this.lanes.value; this.layouts.clear(); app.redraw(); } },
      make("option", { value: "" }, "one lane"), ...edge.columns.map((column) => make("option", { value: column.name, selected: column.name === this.laneColumn }, column.name)));
    const others = [...app.streams.edges.values()].filter((one) => one !== edge);
    this.against = make("select", { change: () => this.compareWith(this.against.value) }, make("option", { value: "" }, "nothing"),
      ...others.map((one) => make("option", { value: one.id }, one.name)));
    this.tableButton = make("button", { type: "button", "aria-expanded": "false", "aria-controls": `${id}-table`, click: () => this.toggleTable() }, "Table");
    this.spacer = make("div", { class: "spacer" });
    this.stage = make("div", { class: "stage", scroll: () => app.redraw() }, this.spacer);
    this.table = make("div", { class: "table", id: `${id}-table`, hidden: true });
    this.element = make("section", { class: "pane", id, "aria-label": `stream ${edge.name}` },
      make("header", {},
        make("h2", {}, edge.name), this.summary,
        make("label", {}, "lanes ", this.lanes), make("label", {}, "over ", this.against), this.tableButton,
        make("button", { type: "button", "aria-label": `close ${edge.name}`, click: () => app.togglePane(edge.id) }, "×")),
      this.stage, this.hover, this.table);
    this.setPictures(1);
  }

  setPictures(number) {
    if (this.pictures.length === number) return;
    this.pictures.forEach((picture) => picture.canvas.remove());
    this.pictures = Array.from({ length: number }, (_, i) => {
      const picture = new Picture((bar) => this.pick(bar, i), (bar) => this.point(bar, i));
      this.spacer.append(picture.canvas);
      this.watchPointer(picture);
      return picture;
    });
    this.spacer.classList.toggle("two", number === 2);
  }

  /** Dragging moves along time; the wheel with Ctrl, or on the axis, changes the scale; keys do both. */
  watchPointer(picture) {
    const { app } = this;
    const { canvas } = picture;
    let from = null;
    canvas.addEventListener("pointerdown", (event) => { from = { x: event.clientX, view: [...app.view], moved: false }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) return;
      const shift = ((from.x - event.clientX) / (canvas.clientWidth - GUTTER)) * (from.view[1] - from.view[0]);
      from.moved ||= Math.abs(from.x - event.clientX) > 3;
      if (from.moved) app.setView([from.view[0] + shift, from.view[1] + shift]);
    });
    canvas.addEventListener("pointerup", () => { picture.wasDragged = from?.moved; from = null; });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && event.offsetY > AXIS) return;
      event.preventDefault();
      app.zoom(Math.exp(event.deltaY * 0.002), picture.time(Math.max(GUTTER, event.offsetX)));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -0.1, ArrowRight: 0.1 };
      if (event.key in moves) app.pan(moves[event.key]);
      else if (event.key === "ArrowUp" || event.key === "ArrowDown") this.stage.scrollTop += event.key === "ArrowUp" ? -44 : 44;
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  pick(bar, at) {
    const picture = this.pictures[at];
    if (picture.wasDragged) { picture.wasDragged = false; return; }
    this.app.select(bar === undefined ? null : { edge: this.edgeOf(at), bar });
  }

  point(bar, at) {
    this.hover.textContent = bar === undefined ? "" : describeBar(this.edgeOf(at), bar, this.momentOf(at), this.app.times);
  }

  edgeOf(at) { return this.other && at === 1 ? this.other : this.edge; }

  momentOf(at) { return this.app.pinned !== null && !this.other && at === 0 ? this.app.pinned : this.app.moment; }

  compareWith(id) {
    this.other = this.app.streams.edges.get(id) ?? null;
    this.app.redraw();
  }

  layoutOf(edge) {
    const filter = this.app.filterOf(edge);
    const known = this.layouts.get(edge.id);
    if (known && known.bars === edge.bars && known.search === this.app.search) return known;
    const layout = new Layout(edge, this.laneColumn, filter);
    layout.search = this.app.search;
    this.layouts.set(edge.id, layout);
    return layout;
  }

  draw() {
    const { app, edge, other } = this;
    if (!this.lanes.options[1] && edge.columns.length) this.refill();
    const isPinned = app.pinned !== null && !other;
    this.setPictures(isPinned || other ? 2 : 1);
    const layouts = this.pictures.map((_, i) => this.layoutOf(this.edgeOf(i)));
    const height = Math.max(...layouts.map((layout) => layout.height)) + AXIS + 4;
    this.spacer.style.height = `${height}px`;
    const found = other ? this.difference() : null;
    const changes = isPinned ? this.changes() : null;
    this.pictures.forEach((picture, i) => {
      const own = this.edgeOf(i);
      const marks = new Map(app.marksOf(own));
      const dims = app.marks.size > 0;
      if (found) for (const bar of i ? found.onlyRight : found.onlyLeft) marks.set(bar, i ? "came" : "gone");
      if (changes) {
        const isLater = i === 1 ? app.moment >= app.pinned : app.moment < app.pinned;
        for (const bar of isLater ? changes.come : changes.gone) marks.set(bar, isLater ? "came" : "gone");
        for (const bar of changes.changed) marks.set(bar, "changed");
      }
      picture.canvas.setAttribute("aria-label", `timeline of ${own.name}; the button Table shows it as a table`);
      picture.canvas.setAttribute("role", "img");
      picture.canvas.style.height = `${this.stage.clientHeight}px`;
      picture.draw({ layout: layouts[i], moment: this.momentOf(i), view: app.view, scroll: this.stage.scrollTop, marks, dims, times: app.times,
        colours: app.colours, hidesGhosts: !app.showsGhosts, laneColumn: this.laneColumn });
    });
    this.summary.textContent = this.describe(layouts[0], found, changes);
    if (!this.table.hidden) this.fillTable(layouts[0]);
  }

  /** The columns are known once an element has come. */
  refill() {
    this.laneColumn = defaultLanes(this.edge);
    this.lanes.append(...this.edge.columns.map((column) => make("option", { value: column.name, selected: column.name === this.laneColumn }, column.name)));
  }

  describe(layout, found, changes) {
    const { app, edge, other } = this;
    if (other) {
      if (!found) return `${edge.name} and ${other.name} have other columns`;
      const only = found.onlyLeft.size + found.onlyRight.size;
      return only ? `left ${edge.name}, right ${other.name}: ${count(found.onlyLeft.size)} only left, ${count(found.onlyRight.size)} only right` : `equivalent to ${other.name} at this moment`;
    }
    if (changes) return `left the pinned moment, right this one: ${count(changes.come.size)} came, ${count(changes.gone.size)} went, ${count(changes.changed.size)} changed`;
    const { inserts, retractions } = edge.countsAt(app.moment);
    const part = layout.shown < edge.bars ? `, ${count(layout.shown)} of ${count(edge.bars)} match` : "";
    const before = edge.orphans ? `, ${count(edge.orphans)} from before the recording` : "";
    return `${counted(inserts, "insert")}, ${counted(retractions, "retraction")}${part}${before}`;
  }

  difference() {
    const { edge, other } = this;
    const pair = `${other.id} ${edge.size} ${other.size}`;
    if (this.pairKey !== pair) {
      this.pairKey = pair;
      this.comparison = new Comparison(edge, other);
      this.differenceAt = undefined;
    }
    if (this.differenceAt !== this.app.moment) {
      this.differenceAt = this.app.moment;
      this.found = this.comparison.at(this.app.moment);
    }
    return this.found;
  }

  changes() {
    const key = `${this.app.pinned} ${this.app.moment}`;
    if (this.changesKey !== key) {
      this.changesKey = key;
      this.changed = changesBetween(this.edge, this.app.pinned, this.app.moment);
    }
    return this.changed;
  }

  toggleTable() {
    this.table.hidden = !this.table.hidden;
    this.tableButton.setAttribute("aria-expanded", String(!this.table.hidden));
    this.app.redraw();
  }

  /** The events in view as a table, the first of them. */
  fillTable(layout) {
    const { app, edge } = this;
    const key = [app.moment, app.search, app.view, edge.bars, app.selected?.bar, app.showsGhosts].join(" ");
    if (key === this.tableKey) return;
    this.tableKey = key;
    const rows = [];
    let inView = 0;
    for (const lane of layout.rows) {
      for (const bar of layout.barsBetween(lane, ...app.view)) {
        const end = edge.endAt(bar, app.moment);
        const isGone = end === edge.barStart.data[bar];
        if (Number.isNaN(end) || (isGone && !app.showsGhosts)) continue;
        if (inView++ < MOST_IN_TABLE) rows.push(this.tableRow(bar, isGone));
      }
    }
    const names = edge.columns.map((column) => make("th", { scope: "col" }, column.name));
    const caption = inView > MOST_IN_TABLE ? `the first ${MOST_IN_TABLE} of ${count(inView)} events in view` : counted(inView, "event") + " in view";
    this.table.replaceChildren(make("table", {}, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...["", "state", "start", "end"].map((name) => make("th", { scope: "col" }, name)), ...names)),
      make("tbody", {}, ...rows)));
  }

  tableRow(bar, isGone) {
    const { app, edge } = this;
    const element = edge.barElement.data[bar];
    const texts = edge.columns.map((column) => make("td", {}, column.text(element) ?? "null"));
    const isSelected = app.selected?.edge === edge && app.selected.bar === bar;
    const label = `look at ${writePayload(edge.textsOf(element))}`;
    return make("tr", { class: isGone ? "gone" : "", "aria-selected": String(isSelected) },
      make("td", {}, make("button", { type: "button", "aria-label": label, click: () => app.select({ edge, bar }) }, "Look")),
      make("td", {}, stateOf(edge, bar, app.moment)), make("td", {}, app.times.write(edge.vs.data[element])),
      make("td", {}, app.times.write(edge.saidEndTickAt(bar, app.moment))), ...texts);
  }

  /** Scroll to the row of a bar. */
  reveal(bar) {
    const layout = this.layoutOf(this.edge);
    const row = layout.rows[layout.rowOf[bar]];
    if (!row) return;
    const high = this.stage.clientHeight - AXIS;
    if (row.top < this.stage.scrollTop || row.top + 22 > this.stage.scrollTop + high) this.stage.scrollTop = Math.max(0, row.top - high / 2);
  }
}

/** The column whose values are the lanes: the first text that has few of them, else the one that has fewest. */
function defaultLanes(edge) {
  const isText = (column) => column.texts.some((text) => Number.isNaN(Number(text)));
  const texts = edge.columns.filter(isText);
  const few = texts.find((column) => column.texts.length <= FEW);
  const fewest = (texts.length ? texts : edge.columns.slice(1)).reduce((one, other) => (other.texts.length < one?.texts.length ? other : one ?? other), null);
  return (few ?? fewest)?.name ?? "";
}

/** Final, speculative or taken back, in words. */
export function stateOf(edge, bar, moment) {
  const end = edge.endAt(bar, moment);
  const start = edge.barStart.data[bar];
  if (end === start) return "taken back";
  const cti = edge.ctiAt(moment);
  const until = cti === undefined ? -Infinity : toNumber(cti);
  if (end <= until) return "final";
  return start < until ? "final up to the cti" : "speculative";
}

/** A bar in one line. */
export function describeBar(edge, bar, moment, times) {
  const element = edge.barElement.data[bar];
  const lifetime = `[${times.write(edge.vs.data[element])}, ${times.write(edge.saidEndTickAt(bar, moment))})`;
  return `${writePayload(edge.textsOf(element))} ${lifetime} ${stateOf(edge, bar, moment)}`;
}

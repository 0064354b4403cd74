// An edge as a picture: lifetimes as bars, in lanes by key. What is final is solid, what may still change is striped,
// what was taken back is struck through, and the CTI is a line.
//
// The layout is made once: a bar keeps its row whatever moment is shown. Two bars share a row if they never live at
// the same time, in either sense: one ends before the other begins, or did so in all that was believed of both at once.
// So a revised answer stands where the old one stood. Drawing looks at the rows in view, and in each only at the bars in
// view; bars that are narrower than a pixel are drawn once per pixel.
import { make, writePayload } from "./dom.js";
import { countBelow } from "./model.js";
import { toNumber } from "./times.js";

const ROW = 22;
const BAR = 14;
const GAP = 8;
const TOP = 6;
export const AXIS = 24;
export const GUTTER = 132;
const MOST_ROWS = 200;
const MOST_PARTS = 64;
const MOST_LABELS = 400;
const LEAST_LETTERS = 6;
const ALL_FINAL = "all final →";

/** Which bars of an edge stand where. */
export class Layout {
  constructor(edge, laneColumn, filter) {
    this.edge = edge;
    this.bars = edge.bars;
    const column = edge.columns.find((one) => one.name === laneColumn);
    const laneOf = (bar) => (column ? column.codes.data[edge.barElement.data[bar]] : 0);
    const chosen = [];
    for (let bar = 0; bar < edge.bars; bar++) if (!filter || filter(bar)) chosen.push(bar);
    const byLane = new Map();
    for (const bar of chosen) {
      const lane = laneOf(bar);
      if (byLane.has(lane)) byLane.get(lane).push(bar); else byLane.set(lane, [bar]);
    }
    const label = (lane) => (column ? column.texts[lane] ?? "null" : "");
    const lanes = [...byLane.keys()].sort((a, b) => label(a).localeCompare(label(b), "en", { numeric: true }));
    this.shown = chosen.length;
    this.rows = [];
    this.lanes = [];
    let top = TOP;
    for (const lane of lanes) {
      const rows = pack(edge, byLane.get(lane));
      this.lanes.push({ label: label(lane), top, firstRow: this.rows.length, rows: rows.length });
      for (const bars of rows) {
        this.rows.push(makeRow(edge, bars, top));
        top += ROW;
      }
      top += GAP;
    }
    this.height = top;
    this.rowOf = new Int32Array(edge.bars).fill(-1);
    this.rows.forEach((row, number) => { for (const bar of row.bars) this.rowOf[bar] = number; });
  }

  /** The rows from one height to another. */
  rowsBetween(from, to) {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].top + ROW <= from) low = middle + 1; else high = middle;
    }
    const found = [];
    for (let i = low; i < this.rows.length && this.rows[i].top < to; i++) found.push(this.rows[i]);
    return found;
  }

  /** The bars of a row whose lifetimes, as they ever were, meet a range of times. */
  *barsBetween(row, start, end) {
    const first = countBelow(row.reach, row.reach.length, start);
    const last = countBelow(row.starts, row.starts.length, end);
    for (let i = first; i < last; i++) yield row.bars[i];
  }
}

function pack(edge, bars) {
  const { data: start } = edge.barStart;
  bars.sort((a, b) => start[a] - start[b] || a - b);
  const rows = [];
  for (const bar of bars) {
    const beliefs = beliefsIn(edge, bar);
    const { born } = beliefs[0];
    const { died } = beliefs[beliefs.length - 1];
    const isFree = (row) => !row.parts.some((part) => part.end > start[bar] && part.born < died && born < part.died);
    let row = rows.find(isFree);
    if (!row) {
      row = rows.length < MOST_ROWS ? { bars: [], parts: [] } : rows[MOST_ROWS - 1];
      if (!row.bars.length) rows.push(row);
    }
    if (row.parts.length > MOST_PARTS) row.parts = shorten(row.parts, start[bar]);
    row.bars.push(bar);
    row.parts.push(...beliefs.filter((part) => part.end > start[bar]));
  }
  return rows.map((row) => row.bars);
}

/** The ends that an event was told to have, each with the steps from and until which it was. */
function beliefsIn(edge, bar) {
  const born = edge.barBorn.data[bar] < 0 ? -1 : edge.step.data[edge.barElement.data[bar]];
  const parts = [{ born, died: Infinity, end: edge.barEnd.data[bar] }];
  for (let r = edge.revisionFirst.data[bar]; r >= 0; r = edge.revisionNext.data[r]) {
    const at = edge.step.data[edge.revisionElement.data[r]];
    const end = edge.revisionEnd.data[r];
    parts[parts.length - 1].died = at;
    if (end > edge.barStart.data[bar]) parts.push({ born: at, died: Infinity, end });
  }
  return parts;
}

/** Parts that still matter at a time; if they are too many, as one, which takes too much room rather than too little. */
function shorten(parts, time) {
  const left = parts.filter((part) => part.end > time);
  if (left.length <= MOST_PARTS / 2) return left;
  return [left.reduce((one, other) => ({ born: Math.min(one.born, other.born), died: Math.max(one.died, other.died), end: Math.max(one.end, other.end) }))];
}

function makeRow(edge, bars, top) {
  const starts = Float64Array.from(bars, (bar) => edge.barStart.data[bar]);
  const reach = new Float64Array(bars.length);
  let furthest = -Infinity;
  bars.forEach((bar, i) => { reach[i] = furthest = Math.max(furthest, edge.barLongest.data[bar]); });
  return { bars, starts, reach, top };
}

/** The colours of the page, read again when they change. */
export function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "muted", "line", "panel", "final", "speculative", "stripe", "ghost", "cti", "selected", "needed", "shared", "came", "gone", "changed", "band", "on-final"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** A canvas that shows an edge at a moment. */
export class Picture {
  constructor(onPick, onHover) {
    this.canvas = make("canvas", { tabindex: "0", class: "picture" });
    this.context = this.canvas.getContext("2d");
    this.canvas.addEventListener("click", (event) => onPick(this.barAt(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("mousemove", (event) => onHover(this.barAt(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("mouseleave", () => onHover(undefined));
  }

  /** Draw; `scene` says what: layout, moment, view, scroll, marks (a map from bar to colour), and what to leave out. */
  draw(scene) {
    this.scene = scene;
    const { canvas, context } = this;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    if (!width || !height) return;
    this.width = width;
    this.height = height;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.drawBands();
    this.drawBars();
    this.drawGutter();
    this.drawAxis();
    this.drawCti();
  }

  x(time) {
    const [start, end] = this.scene.view;
    return GUTTER + ((time - start) / (end - start)) * (this.width - GUTTER);
  }

  time(x) {
    const [start, end] = this.scene.view;
    return start + ((x - GUTTER) / (this.width - GUTTER)) * (end - start);
  }

  visibleRows() {
    const { layout, scroll } = this.scene;
    return layout.rowsBetween(scroll, scroll + this.height - AXIS);
  }

  drawBands() {
    const { layout, scroll, colours } = this.scene;
    this.context.fillStyle = colours.band;
    layout.lanes.forEach((lane, i) => {
      const top = lane.top - scroll + AXIS - GAP / 2;
      const height = lane.rows * ROW + GAP;
      if (i % 2 && top < this.height && top + height > AXIS) this.context.fillRect(0, top, this.width, height);
    });
    const { marks } = this.scene.times.marks(...this.scene.view, (this.width - GUTTER) / 110);
    this.context.fillStyle = colours.line;
    for (const mark of marks) this.context.fillRect(Math.round(this.x(mark)), AXIS, 1, this.height);
  }

  /** Bars in view, gathered by how they are drawn. */
  drawBars() {
    const { layout, moment, view, scroll, marks, dims, colours, hidesGhosts } = this.scene;
    const { edge } = layout;
    const { context, width } = this;
    const cti = edge.ctiAt(moment);
    const until = cti === undefined ? -Infinity : toNumber(cti);
    const ctiX = until === -Infinity ? GUTTER : until === Infinity ? width : Math.min(width, Math.max(GUTTER, this.x(until)));
    // Where some bars are lit, the others are dim.
    const solid = { lit: [], dim: [] };
    const striped = { lit: [], dim: [] };
    const ghosts = [];
    const rings = [];
    const labels = [];
    for (const row of this.visibleRows()) {
      const y = row.top - scroll + AXIS;
      let drawn = -1;
      let ghosted = -1;
      for (const bar of layout.barsBetween(row, ...view)) {
        const end = edge.endAt(bar, moment);
        if (Number.isNaN(end)) continue;
        const start = edge.barStart.data[bar];
        const left = Math.max(GUTTER, this.x(start));
        if (end > start) {
          const right = Math.min(width, this.x(end));
          if (right > drawn || right - left > 1) {
            drawn = Math.max(drawn, right);
            const wide = Math.max(1, right - left - 1);
            const how = dims && !marks.has(bar) ? "dim" : "lit";
            if (left < ctiX) solid[how].push(left, y, Math.min(wide, Math.max(1, ctiX - left)));
            if (left + wide > ctiX) striped[how].push(Math.max(left, ctiX), y, left + wide - Math.max(left, ctiX));
            if (wide > 26 && labels.length < MOST_LABELS) labels.push([bar, left, y, wide, ctiX]);
          }
          const mark = marks.get(bar);
          if (mark) rings.push([mark, left, y, Math.max(3, right - left - 1)]);
        }
        if (!hidesGhosts && edge.revisionFirst.data[bar] >= 0) {
          const longest = edge.longestAt(bar, moment);
          if (longest > end) {
            const from = Math.max(GUTTER, this.x(end));
            const to = Math.min(width, this.x(longest));
            if (to > ghosted && to > from) { ghosted = to; ghosts.push(from, y, to - from); }
            const mark = marks.get(bar);
            if (mark && !(end > start)) rings.push([mark, from, y + BAR, Math.max(3, to - from - 1), 7]);
          }
        }
      }
    }
    context.save();
    context.beginPath();
    context.rect(GUTTER, AXIS, width - GUTTER, this.height - AXIS);
    context.clip();
    for (const how of ["dim", "lit"]) {
      context.globalAlpha = how === "dim" ? 0.35 : 1;
      this.fill(solid[how], colours.final, 1, BAR);
      this.fill(striped[how], colours.speculative, 1, BAR);
      this.fill(striped[how], this.stripes(colours), 1, BAR);
    }
    context.globalAlpha = 1;
    context.fillStyle = colours.ghost;
    for (let i = 0; i < ghosts.length; i += 3) {
      context.globalAlpha = 0.25;
      context.fillRect(ghosts[i], ghosts[i + 1] + BAR + 1, ghosts[i + 2], 6);
      context.globalAlpha = 1;
      context.fillRect(ghosts[i], ghosts[i + 1] + BAR + 3.5, ghosts[i + 2], 1);
    }
    context.lineWidth = 2.5;
    for (const [mark, left, y, wide, high] of rings) {
      context.strokeStyle = colours[mark] ?? colours.selected;
      context.strokeRect(left + 0.5, y + 0.5, wide, high ?? BAR);
    }
    for (const [bar, left, y, wide, split] of labels) {
      const text = this.label(bar);
      const room = Math.floor((wide - 8) / 6.4);
      // A few letters of a longer text say nothing.
      if (room < Math.min(text.length, LEAST_LETTERS)) continue;
      const cut = text.length > room ? text.slice(0, room - 1) + "…" : text;
      context.fillStyle = left + 5 + cut.length * 3.2 < split && !(dims && !marks.has(bar)) ? colours["on-final"] : colours.ink;
      context.fillText(cut, left + 5, y + BAR / 2 + 1);
    }
    context.restore();
  }

  fill(places, style, above, high) {
    this.context.fillStyle = style;
    for (let i = 0; i < places.length; i += 3) this.context.fillRect(places[i], places[i + 1] + above, places[i + 2], high - above);
  }

  stripes(colours) {
    if (this.stripeColour !== colours.stripe) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 6;
      const context = tile.getContext("2d");
      context.strokeStyle = colours.stripe;
      context.lineWidth = 1.4;
      for (const shift of [-6, 0, 6]) {
        context.beginPath();
        context.moveTo(shift, 6);
        context.lineTo(shift + 6, 0);
        context.stroke();
      }
      this.stripePattern = this.context.createPattern(tile, "repeat");
      this.stripeColour = colours.stripe;
    }
    return this.stripePattern;
  }

  /** What is written on a bar: its payload without the key of its lane, and without names if there is one column. */
  label(bar) {
    const { layout, laneColumn } = this.scene;
    const { edge } = layout;
    const element = edge.barElement.data[bar];
    const columns = edge.columns.filter((column) => column.name !== laneColumn);
    if (columns.length === 1) return columns[0].text(element) ?? "null";
    return writePayload(edge.textsOf(element), laneColumn);
  }

  drawGutter() {
    const { layout, scroll, colours } = this.scene;
    const { context } = this;
    context.fillStyle = colours.panel;
    context.fillRect(0, AXIS, GUTTER - 1, this.height);
    context.fillStyle = colours.line;
    context.fillRect(GUTTER - 1, AXIS, 1, this.height);
    context.fillStyle = colours.ink;
    context.save();
    context.beginPath();
    context.rect(0, AXIS, GUTTER - 6, this.height);
    context.clip();
    for (const lane of layout.lanes) {
      const bottom = lane.top + lane.rows * ROW;
      if (bottom < scroll || lane.top > scroll + this.height) continue;
      const y = Math.min(Math.max(lane.top, scroll), bottom - ROW) - scroll + AXIS;
      context.fillText(lane.label.length > 20 ? lane.label.slice(0, 19) + "…" : lane.label, 8, y + BAR / 2 + 1);
    }
    context.restore();
  }

  drawAxis() {
    const { colours, times, view } = this.scene;
    const { context } = this;
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, this.width, AXIS);
    context.fillStyle = colours.line;
    context.fillRect(0, AXIS - 1, this.width, 1);
    const { marks, step } = times.marks(...view, (this.width - GUTTER) / 110);
    context.fillStyle = colours.muted;
    context.fillText(times.day(view[0]), 8, AXIS / 2);
    for (const mark of marks) {
      const x = this.x(mark);
      if (x >= GUTTER) context.fillText(times.mark(mark, step), x + 3, AXIS / 2);
    }
  }

  drawCti() {
    const { layout, moment, colours } = this.scene;
    const cti = layout.edge.ctiAt(moment);
    if (cti === undefined) return;
    const x = this.x(toNumber(cti));
    const { context } = this;
    context.fillStyle = colours.cti;
    if (x >= this.width || toNumber(cti) === Infinity) {
      // On a ground of its own: it may stand where a mark of the axis is.
      const wide = context.measureText(ALL_FINAL).width + 10;
      context.fillStyle = colours.panel;
      context.fillRect(this.width - wide, 0, wide, AXIS - 1);
      context.fillStyle = colours.cti;
      context.fillText(ALL_FINAL, this.width - wide + 6, AXIS / 2);
    } else if (x >= GUTTER) {
      context.fillRect(x - 1, 0, 2, this.height);
      context.beginPath();
      context.moveTo(x - 5, 0);
      context.lineTo(x + 5, 0);
      context.lineTo(x, 8);
      context.fill();
    }
  }

  /** The bar at a place: one that is believed rather than one that was taken back. */
  barAt(x, y) {
    if (!this.scene || y < AXIS || x < GUTTER) return undefined;
    const { layout, scroll, moment, hidesGhosts } = this.scene;
    const { edge } = layout;
    const height = y - AXIS + scroll;
    const row = layout.rowsBetween(height, height + 1)[0];
    if (!row) return undefined;
    const slack = this.time(x + 3) - this.time(x);
    const time = this.time(x);
    let ghost;
    let live;
    for (const bar of layout.barsBetween(row, time - slack, time + slack)) {
      const end = edge.endAt(bar, moment);
      if (Number.isNaN(end)) continue;
      const start = edge.barStart.data[bar];
      if (end > start && start - slack <= time && time <= end + slack) live = bar;
      else if (!hidesGhosts && edge.longestAt(bar, moment) > end && time <= edge.longestAt(bar, moment) + slack) ghost = bar;
    }
    const isLow = height - row.top > BAR;
    return isLow ? ghost ?? live : live ?? ghost;
  }
}

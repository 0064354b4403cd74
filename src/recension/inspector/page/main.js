// The inspector: what its parts share, and how buttons, keys and the server reach them.
import { byId, count, counted, make } from "./dom.js";
import { Details } from "./details.js";
import { CTI, RETRACT, Streams } from "./model.js";
import { NumberTable } from "./numbers.js";
import { Pane } from "./pane.js";
import { PlanGraph } from "./plan.js";
import { readColours } from "./timeline.js";
import { TimeWriter } from "./times.js";

const AT_ONCE = 30000;
const POLL = 1000;
const PLAY = 450;

/** The page at work. */
class Inspector {
  constructor(data, isServed) {
    this.isServed = isServed;
    this.can = isServed ? data.can : {};
    this.reasons = data.reasons ?? [];
    this.streams = new Streams(data);
    this.times = new TimeWriter(this.streams.times);
    this.moment = this.streams.size;
    this.pinned = null;
    this.view = this.streams.extent();
    this.search = "";
    this.showsGhosts = true;
    this.selected = null;
    this.marks = new Map();
    this.lit = new Set();
    this.panes = new Map();
    this.colours = readColours();
    document.title = byId("title").textContent = this.streams.title;
    this.showNotes(this.streams.notes);
    document.documentElement.classList.toggle("no-elements", !this.streams.edges.size);
    this.graph = new PlanGraph(byId("plan"), this.streams, this.times, (id) => this.togglePane(id));
    this.details = new Details(byId("details"), this);
    this.numbers = new NumberTable(byId("numbers"), this);
    this.details.show(null);
    this.bind();
    for (const edge of this.streams.edges.values()) if (edge.about.role !== "step") this.togglePane(edge.id);
    this.goTo(this.moment);
    if (isServed && this.streams.isLive) setInterval(() => this.poll(), POLL);
  }

  showNotes(notes) { byId("notes").replaceChildren(...notes.map((note) => make("p", {}, note))); }

  bind() {
    const moves = { "back-cti": ["cti", -1], "back-step": ["step", -1], "back-element": ["element", -1], "on-element": ["element", 1], "on-step": ["step", 1], "on-cti": ["cti", 1] };
    for (const [id, [unit, way]] of Object.entries(moves)) byId(id).addEventListener("click", () => this.move(unit, way));
    const clicks = { "to-start": () => this.goTo(0), "to-end": () => this.goTo(this.streams.size), play: () => this.togglePlay(), pin: () => this.togglePin(),
      "zoom-in": () => this.zoom(0.6), "zoom-out": () => this.zoom(1 / 0.6), fit: () => this.setView(this.streams.extent()) };
    for (const [id, act] of Object.entries(clicks)) byId(id).addEventListener("click", act);
    byId("moment").addEventListener("input", () => this.goTo(Number(byId("moment").value)));
    byId("search").addEventListener("input", () => { this.search = byId("search").value.trim(); this.redraw(); });
    byId("ghosts").addEventListener("change", () => { this.showsGhosts = byId("ghosts").checked; this.redraw(); });
    byId("theme").addEventListener("change", () => { document.documentElement.dataset.theme = byId("theme").value; this.recolour(); });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    byId("export").hidden = !this.isServed;
    document.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.redraw()).observe(byId("panes"));
  }

  onKey(event) {
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range" && event.target.type !== "checkbox";
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = { ArrowLeft: () => this.move("element", -1), ArrowRight: () => this.move("element", 1), PageUp: () => this.move("step", -1), PageDown: () => this.move("step", 1),
      c: () => this.move("cti", 1), C: () => this.move("cti", -1), Home: () => this.goTo(0), End: () => this.goTo(this.streams.size), p: () => this.togglePin(),
      "+": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), 0: () => this.setView(this.streams.extent()), "/": () => byId("search").focus(), Escape: () => this.select(null) };
    if (event.target.tagName !== "BUTTON") keys[" "] = () => this.togglePlay();
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  move(unit, way) { this.goTo(this.streams.move(this.moment, unit, way)); }

  /** Show what was believed after so many elements. */
  goTo(moment) {
    this.moment = moment;
    const slider = byId("moment");
    slider.max = String(this.streams.size);
    slider.value = String(moment);
    const words = this.describeMoment();
    slider.setAttribute("aria-valuetext", words);
    byId("where").textContent = words;
    if (byId("follow").checked) this.follow();
    if (this.selected) this.refreshState();
    this.redraw();
  }

  refreshState() { this.details.show(this.selected); }

  describeMoment() {
    const { streams } = this;
    if (!this.moment) return `before the first of ${counted(streams.size, "element")}`;
    const place = streams.stepAtMoment(this.moment);
    return `after element ${count(this.moment)} of ${count(streams.size)} · ${this.describeStep(place)} of ${count(streams.lastStep)}${this.describeFeed(place)} · ${this.describeElement()}`;
  }

  describeStep(place) { return this.writeStep(this.streams.steps[place] ?? 0); }

  /** The first micro-batch of Spark is number 0, and the first step. */
  writeStep(number) { return this.streams.unit === "step" ? `step ${count(number)}` : number ? `micro-batch ${count(number - 1)}` : "no micro-batch"; }

  describeFeed(place) {
    const at = this.streams.stepAt[place];
    const fed = this.streams.fed[place];
    const when = at ? `, ${new Date(Number(at / 1000n)).toLocaleString("sv-SE")}` : "";
    return `${when}, ${fed === null ? "by the clock" : `fed by ${fed}`}`;
  }

  /** The last element that came. */
  describeElement() {
    const last = this.lastElement();
    if (!last) return "";
    const { edge, element } = last;
    const kind = edge.kind.data[element];
    if (kind === CTI) return `${edge.name}: cti ${this.times.write(edge.vs.data[element])}`;
    return `${edge.name}: ${kind === RETRACT ? "retraction" : "insert"}`;
  }

  lastElement() {
    for (const edge of this.streams.edges.values()) {
      const { seen } = edge.countsAt(this.moment);
      if (seen && edge.order.data[seen - 1] === this.moment - 1) return { edge, element: seen - 1 };
    }
    return null;
  }

  /** Keep the last change in view. */
  follow() {
    const last = this.lastElement();
    if (!last) return;
    const time = Number(last.edge.vs.data[last.element]);
    const [start, end] = this.view;
    if (Number.isSafeInteger(time) && (time < start || time > end)) this.setView([time - 0.7 * (end - start), time + 0.3 * (end - start)]);
  }

  togglePlay() {
    const isOn = byId("play").getAttribute("aria-pressed") !== "true";
    byId("play").setAttribute("aria-pressed", String(isOn));
    clearInterval(this.playing);
    if (!isOn) return;
    if (this.moment === this.streams.size) this.goTo(0);
    this.playing = setInterval(() => {
      this.move("step", 1);
      if (this.moment === this.streams.size && !this.streams.isLive) this.togglePlay();
    }, PLAY);
  }

  togglePin() {
    this.pinned = this.pinned === null ? this.moment : null;
    byId("pin").setAttribute("aria-pressed", String(this.pinned !== null));
    byId("pin").textContent = this.pinned === null ? "Pin this moment" : `Unpin ${this.describeStep(this.streams.stepAtMoment(this.pinned))}`;
    this.redraw();
  }

  togglePane(id) {
    const there = this.panes.get(id);
    if (there) {
      there.element.remove();
      this.panes.delete(id);
    } else {
      const pane = new Pane(this, this.streams.edges.get(id));
      this.panes.set(id, pane);
      const order = [...this.streams.edges.keys()];
      const next = [...this.panes.keys()].filter((other) => order.indexOf(other) > order.indexOf(id)).sort((a, b) => order.indexOf(a) - order.indexOf(b))[0];
      byId("panes").insertBefore(pane.element, next ? this.panes.get(next).element : null);
    }
    this.redraw();
  }

  setView([start, end]) {
    const least = 1e-6 * Math.max(1, Math.abs(start)) + 1;
    this.view = end - start < least ? [start, start + least] : [start, end];
    this.redraw();
  }

  zoom(factor, around = (this.view[0] + this.view[1]) / 2) {
    this.setView(this.view.map((time) => around + (time - around) * factor));
  }

  pan(part) {
    const shift = part * (this.view[1] - this.view[0]);
    this.setView(this.view.map((time) => time + shift));
  }

  /** Which bars of an edge the search is for: some column has the text, or the named column is the value. */
  filterOf(edge) {
    if (!this.search) return null;
    const [name, value] = this.search.split(/=(.*)/s);
    const named = value === undefined ? undefined : edge.columns.find((column) => column.name === name.trim());
    const matches = named
      ? [[named, Uint8Array.from(named.texts, (text) => (text === value.trim() ? 1 : 0))]]
      : edge.columns.map((column) => [column, Uint8Array.from(column.texts, (text) => (text.toLowerCase().includes(this.search.toLowerCase()) ? 1 : 0))]);
    return (bar) => matches.some(([column, flags]) => flags[column.codes.data[edge.barElement.data[bar]]] === 1);
  }

  marksOf(edge) {
    const marks = new Map(this.marks.get(edge.id) ?? []);
    if (this.selected?.edge === edge) marks.set(this.selected.bar, "selected");
    return marks;
  }

  mark(edge, bar, colour) {
    if (!this.marks.has(edge.id)) this.marks.set(edge.id, new Map());
    this.marks.get(edge.id).set(bar, colour);
    this.lit.add(edge.id);
  }

  select(selected) {
    this.selected = selected;
    this.marks = new Map();
    this.lit = new Set(selected ? [selected.edge.id] : []);
    document.documentElement.classList.remove("has-why", "has-effect");
    this.details.show(selected);
    if (selected) this.panes.get(selected.edge.id)?.reveal(selected.bar);
    this.redraw();
  }

  /** Find out what an event rests on and what it changed, and light it up. */
  async explain(selected, details) {
    const { edge } = selected;
    const isNew = this.explained?.selected !== selected;
    if (isNew) this.explained = { selected, told: [] };
    const { told } = this.explained;
    for (const tell of told) tell(details);
    if (!isNew) return;
    const tell = (title, lines) => {
      if (this.explained.selected !== selected) return;
      const say = (place) => place.tell(title, lines());
      told.push(say);
      say(this.details);
      this.redraw();
    };
    if (edge.about.role !== "source") await this.explainWhy(selected, tell);
    if (this.streams.reach(edge.id, "up").size) await this.explainEffect(selected, tell);
    this.redraw();
  }

  async explainWhy({ edge, bar }, tell) {
    const elements = edge.elementsOf(bar).map((element) => edge.first + element);
    const known = this.reasons.find((one) => one.edge === edge.id && one.element === elements[0]);
    const until = this.streams.steps[Math.max(0, this.streams.stepAtMoment(this.moment))];
    const found = known ?? (this.can.why ? await this.ask("why", { edge: edge.id, elements: elements.join(","), until }) : null);
    if (!found) return;
    if (found.error) { tell("Why", () => [make("p", { class: "error" }, found.error)]); return; }
    document.documentElement.classList.add("has-why");
    const events = found.events.map((event) => this.locate(event)).map((event) => ({ ...event, words: event.mark === "shared" ? "one of several reasons" : "needed" }));
    for (const event of events) if (event.bar !== undefined) this.mark(event.edge, event.bar, event.mark);
    for (const id of found.edges ?? []) this.lit.add(id);
    tell("Why", () => [
      make("p", { class: "lead" }, `by what had come until step ${count(found.until)}`),
      make("ol", { class: "steps" }, ...found.steps.map((step) => make("li", {}, make("b", {}, step.label), ...step.lines.map((line) => make("div", {}, line))))),
      ...this.details.listEvents(`It rests on ${counted(events.length, "event")}:`, events),
      ...(found.absences ?? []).map((words) => make("p", { class: "absence" }, `and on that there is ${words}`))]);
  }

  /** What came downstream in the steps of an event, and, if the query is there, what is otherwise without it. */
  async explainEffect({ edge, bar }, tell) {
    const above = this.streams.reach(edge.id, "up");
    const named = this.reasons.filter((one) => one.events.some((event) => event.edge === edge.id && this.locate(event).bar === bar));
    if (named.length) {
      const events = named.map((one) => { const on = this.streams.edges.get(one.edge); return { edge: on, bar: on.barOf.data[one.element - on.first] }; });
      for (const event of events) this.mark(event.edge, event.bar, "came");
      document.documentElement.classList.add("has-effect");
      tell("What it changed", () => this.details.listEvents(`${counted(events.length, "answer rests", "answers rest")} on it:`, events));
      return;
    }
    const together = this.cameTogether(edge, bar, above);
    if (!this.can.effect) {
      for (const event of together) this.mark(event.edge, event.bar, "came");
      if (together.length) document.documentElement.classList.add("has-effect");
      tell("What came with it", () => together.length ? this.details.listEvents("In the steps that told of it, these changed downstream:", together) : [make("p", {}, "Nothing changed downstream in the steps that told of it.")]);
      return;
    }
    if (this.streams.size > AT_ONCE) {
      tell("What it changed", () => [make("button", { type: "button", click: () => this.replayWithout(edge, bar, tell) }, "Replay the query without it")]);
    } else await this.replayWithout(edge, bar, tell);
  }

  async replayWithout(edge, bar, tell) {
    const elements = edge.elementsOf(bar).map((element) => edge.first + element).join(",");
    const found = await this.ask("effect", { edge: edge.id, elements });
    if (found.error) { tell("What it changed", () => [make("p", { class: "error" }, found.error)]); return; }
    const because = [];
    const instead = [];
    for (const [id, one] of Object.entries(found.edges)) {
      because.push(...one.because.map((event) => this.locate({ ...event, edge: id })));
      instead.push(...one.instead.map((event) => this.locate({ ...event, edge: id })));
      this.lit.add(id);
    }
    for (const event of because) if (event.bar !== undefined) this.mark(event.edge, event.bar, "came");
    document.documentElement.classList.add("has-effect");
    const cut = found.left_out ? [make("p", {}, `${count(found.left_out)} more are not listed.`)] : [];
    tell("What it changed", () => because.length || instead.length ? [
      ...(because.length ? this.details.listEvents("Without it, these would not be there in the end:", because) : []),
      ...(instead.length ? this.details.listEvents("and these would be:", instead.map((event) => ({ edge: event.edge, text: event.text }))) : []), ...cut]
      : [make("p", {}, "Nothing: in the end, everything downstream would be the same without it.")]);
  }

  cameTogether(edge, bar, above) {
    const places = new Set(edge.elementsOf(bar).map((element) => this.streams.stepAtMoment(edge.order.data[element] + 1)));
    const found = new Map();
    for (const place of places) {
      for (const id of above) {
        const other = this.streams.edges.get(id);
        if (!other) continue;
        for (const element of this.streams.elementsInStep(other, place)) {
          const there = other.barOf.data[element];
          if (there >= 0) found.set(`${id} ${there}`, { edge: other, bar: there });
        }
      }
    }
    return [...found.values()];
  }

  /** The bar of an event that the server names. */
  locate(event) {
    const edge = this.streams.edges.get(event.edge);
    const bars = edge?.find(event.texts, event.vs, event.ve) ?? edge?.findAnyEnd(event.texts, event.vs);
    const text = `${Object.entries(event.texts).map(([name, value]) => `${name} ${value ?? "null"}`).join(", ")} [${this.times.write(BigInt(event.vs))}, ${this.times.write(BigInt(event.ve))})`;
    return { edge, bar: bars?.[0], mark: event.mark, text };
  }

  async ask(name, words) {
    try {
      return await (await fetch(`${name}?${new URLSearchParams(words)}`)).json();
    } catch (why) {
      return { error: `the inspector does not answer (${why.message}): is the command still running?` };
    }
  }

  /** Ask for what has come since. */
  async poll() {
    if (!this.streams.isLive || this.isPolling) return;
    this.isPolling = true;
    const wasAtEnd = this.moment === this.streams.size;
    const [start, end] = this.streams.extent();
    const wasFit = this.view[0] === start && this.view[1] === end;
    const more = await this.ask("data", { after: this.streams.lastStep });
    this.isPolling = false;
    if (more.error) { this.showNotes([...this.streams.notes, more.error]); return; }
    const joined = Object.keys(more.edges).some((id) => !this.streams.edges.has(id));
    const isMore = this.streams.append(more);
    this.showNotes(joined ? [...this.streams.notes, "a stream has joined the plan since: load the page again to see it"] : this.streams.notes);
    this.numbers.show();
    if (!isMore) { this.redraw(); return; }
    if (wasFit) this.view = this.streams.extent();
    this.goTo(wasAtEnd || byId("follow").checked ? this.streams.size : this.moment);
  }

  recolour() {
    this.colours = readColours();
    this.redraw();
  }

  redraw() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => {
      this.isDrawing = false;
      const began = performance.now();
      const root = document.documentElement;
      root.classList.toggle("has-two", this.pinned !== null || [...this.panes.values()].some((pane) => pane.other));
      this.graph.show(this.moment, new Set(this.panes.keys()), this.lit);
      for (const pane of this.panes.values()) pane.draw();
      root.dataset.frame = (performance.now() - began).toFixed(1);
      if (!root.dataset.drawn) root.dataset.firstDrawn = String(Math.round(performance.now()));
      root.dataset.drawn = String(Number(root.dataset.drawn ?? 0) + 1);
    });
  }
}

async function start() {
  const embedded = byId("data");
  try {
    const data = embedded ? JSON.parse(embedded.textContent) : await (await fetch("data")).json();
    if (data.error) throw new Error(data.error);
    new Inspector(data, !embedded);
  } catch (why) {
    byId("notes").replaceChildren(make("p", { class: "error" }, `The recording cannot be shown: ${why.message}`));
    throw why;
  }
}

start();

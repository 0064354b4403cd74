// The plan as a graph: sources above, answers below; each step a button with what it has given by now.
import { count, make } from "./dom.js";
import { BEGINNING } from "./times.js";

const WIDE = 216;
const HIGH = 100;
const ACROSS = 16;
const DOWN = 34;

/** Shows the plan; `onPick` is called with the id of a step. */
export class PlanGraph {
  constructor(place, streams, times, onPick) {
    this.streams = streams;
    this.times = times;
    this.buttons = new Map();
    this.about = new Map(streams.plan.map((about) => [about.id, about]));
    const { plan } = streams;
    const depth = new Map();
    const depthOf = (id) => {
      if (!depth.has(id)) {
        depth.set(id, 0);
        const about = plan.find((one) => one.id === id);
        depth.set(id, about.inputs.length ? 1 + Math.max(...about.inputs.map(depthOf)) : 0);
      }
      return depth.get(id);
    };
    const read = new Set(plan.flatMap((about) => about.inputs));
    const used = plan.filter((about) => read.has(about.id) || about.inputs.length || about.is_answer);
    const places = new Map();
    const taken = [];
    // Streams by themselves stand one below the other.
    const alone = used.filter((about) => !about.inputs.length && !read.has(about.id));
    alone.forEach((about, i) => places.set(about.id, [0, i * (HIGH + ACROSS)]));
    const top = alone.length * (HIGH + ACROSS);
    for (const about of used.filter((one) => !alone.includes(one))) {
      const at = depthOf(about.id);
      taken[at] = (taken[at] ?? 0) + 1;
      places.set(about.id, [(taken[at] - 1) * (WIDE + ACROSS), top + at * (HIGH + DOWN)]);
    }
    const width = Math.max(1, ...taken.map((n) => n ?? 1)) * (WIDE + ACROSS) - ACROSS;
    const height = Math.max(...[...places.values()].map(([, y]) => y)) + HIGH;
    const lines = make("svg", { width, height, "aria-hidden": "true", class: "lines" });
    for (const about of used) {
      const [x, y] = places.get(about.id);
      for (const input of about.inputs) {
        const [a, b] = places.get(input);
        const from = [a + WIDE / 2, b + HIGH];
        const to = [x + WIDE / 2, y];
        lines.append(make("path", { d: `M${from} C${from[0]},${from[1] + DOWN / 2} ${to[0]},${to[1] - DOWN / 2} ${to}`, "data-from": input, "data-to": about.id }));
      }
    }
    const canvas = make("div", { class: "graph" }, lines);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    for (const about of used) {
      const button = make(
        "button",
        { class: `step ${about.role}`, type: "button", "aria-pressed": "false", click: () => onPick(about.id), disabled: !about.recorded },
        make("span", { class: "role" }, (about.of ? `${about.of} · ` : "") + (about.kind ?? about.role)),
        make("span", { class: "name" }, about.role === "answer" && about.name !== about.label ? `${about.name}: ${about.label}` : about.label),
        make("span", { class: "numbers" }),
        make("span", { class: "until" }),
      );
      const [x, y] = places.get(about.id);
      Object.assign(button.style, { left: `${x}px`, top: `${y}px`, width: `${WIDE}px`, height: `${HIGH}px` });
      this.buttons.set(about.id, button);
      canvas.append(button);
    }
    place.replaceChildren(canvas);
    this.lines = lines;
  }

  /** What every step has given by a moment; which steps are shown, and which are lit. */
  show(moment, open, lit) {
    for (const [id, button] of this.buttons) {
      const edge = this.streams.edges.get(id);
      button.title = describeStep(this.about.get(id));
      button.setAttribute("aria-pressed", String(open.has(id)));
      button.classList.toggle("lit", lit.has(id));
      const numbers = button.querySelector(".numbers");
      const until = button.querySelector(".until");
      const about = this.about.get(id);
      if (!edge && about.events_out === null) {
        numbers.textContent = "not recorded";
        continue;
      }
      const { dropped, late, state_rows: held } = about;
      const { inserts, retractions } = edge ? edge.countsAt(moment) : { inserts: about.events_out - about.retractions_out, retractions: about.retractions_out };
      const rate = edge ? Math.round(this.streams.rateAt(edge, moment)) : 0;
      const more = [rate ? `${count(rate)}/s` : "", late ? `${count(late)} late` : "", dropped ? `${count(dropped)} dropped` : "", held ? `${count(held)} held` : ""].filter(Boolean).join(" · ");
      numbers.textContent = `+${count(inserts)}  −${count(retractions)}` + (more ? ` · ${more}` : "");
      const cti = edge ? edge.ctiAt(moment) : BigInt(about.cti);
      const words = (edge ? "" : "not recorded · ") + (cti === undefined || cti === BEGINNING ? "nothing final" : `final to ${this.times.write(cti)}`);
      // The second is near enough here; in full it is what is said to who points at it.
      until.textContent = words.replace(/(:\d\d)\.\d+/, "$1");
      button.title += `\n${words}`;
    }
    for (const line of this.lines.children) line.classList.toggle("lit", lit.has(line.dataset.from) && lit.has(line.dataset.to));
  }
}

/** A step in words, for who points at it. */
export function describeStep(about) {
  return [about.label, `columns: ${about.columns}`, about.known && `known: ${about.known}`, about.chosen && `chosen: ${about.chosen}`,
    about.events_out !== null && `state: ${count(about.state_rows)} rows, ${count(about.state_bytes)} bytes; late: ${count(about.late ?? 0)}; dropped: ${count(about.dropped)}; worked ${about.seconds.toFixed(3)} s`,
    ...about.warnings, about.recorded ? "" : "this edge was not recorded: record it with edges=\"all\""].filter(Boolean).join("\n");
}

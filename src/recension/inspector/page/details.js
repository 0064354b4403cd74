// What is known of the selected event: its life, what it rests on, what it changed.
import { counted, make, writePayload } from "./dom.js";
import { CTI, RETRACT, countBelow } from "./model.js";
import { describeBar, stateOf } from "./pane.js";
import { toNumber, writeLength } from "./times.js";

const MOST_LISTED = 25;

/** The panel beside the timelines. */
export class Details {
  constructor(place, app) {
    this.place = place;
    this.app = app;
  }

  /** Show an event, or what can be done if there is none. */
  show(selected) {
    if (!selected) {
      this.place.replaceChildren(make("h2", {}, "Nothing selected"),
        make("p", {}, "Click a bar, or a row of a table, to see its life, what it rests on and what it changed."));
      return;
    }
    const { app } = this;
    const { edge, bar } = selected;
    const element = edge.barElement.data[bar];
    const start = edge.vs.data[element];
    const end = edge.saidEndTickAt(bar, app.moment);
    const length = Number.isFinite(toNumber(end)) && Number.isFinite(toNumber(start)) ? ` (${writeLength(Number(end - start), app.times.isTicks)})` : "";
    this.reasons = make("section", { "aria-live": "polite", class: "reasons" });
    this.place.replaceChildren(
      make("h2", {}, edge.name),
      make("dl", {}, ...Object.entries(edge.textsOf(element)).flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text ?? "null")]),
        make("dt", {}, "lifetime"), make("dd", {}, `[${app.times.write(start)}, ${app.times.write(end)})${length}`),
        make("dt", {}, "state"), make("dd", { class: "state" }, stateOf(edge, bar, app.moment))),
      make("h3", {}, "Its life"), this.life(edge, bar), this.reasons);
    app.explain(selected, this);
  }

  /** Every element that told of it, with the step, and when it became final. */
  life(edge, bar) {
    const { app } = this;
    const list = make("ol", { class: "life" });
    if (edge.barBorn.data[bar] < 0) list.append(make("li", {}, "It was there before the recording began."));
    for (const element of edge.elementsOf(bar)) {
      const order = edge.order.data[element];
      const place = app.streams.stepAtMoment(order + 1);
      const isRetraction = edge.kind.data[element] === RETRACT;
      const ve = app.times.write(isRetraction ? edge.newVe.data[element] : edge.ve.data[element]);
      const isRemoval = isRetraction && edge.newVe.data[element] === edge.vs.data[element];
      const words = !isRetraction ? `said, until ${ve}` : isRemoval ? "taken back" : `now ends at ${ve} instead of ${app.times.write(edge.ve.data[element])}`;
      list.append(make("li", {}, this.momentButton(order + 1, app.describeStep(place)), ` ${words}`, this.causes(edge, place)));
    }
    const settled = this.finalSince(edge, bar);
    if (settled) list.append(make("li", {}, this.momentButton(settled.moment, app.describeStep(app.streams.stepAtMoment(settled.moment))), ` final, by the cti ${app.times.write(settled.cti)}`));
    return list;
  }

  momentButton(moment, text) {
    return make("button", { type: "button", class: "moment", click: () => this.app.goTo(moment) }, text);
  }

  /** The inputs that came in a step: what is said in it is said because of them. */
  causes(edge, place) {
    const { app } = this;
    if (edge.about.role === "source") return null;
    const below = app.streams.reach(edge.id, "down");
    const items = [];
    let more = 0;
    for (const source of app.streams.edges.values()) {
      if (source.about.role !== "source" || !below.has(source.id)) continue;
      for (const element of app.streams.elementsInStep(source, place)) {
        if (items.length === 5) more++;
        else items.push(make("li", {}, this.elementButton(source, element)));
      }
    }
    if (!items.length) return null;
    return make("ul", { class: "causes", "aria-label": "inputs that came in this step" }, ...items, more ? make("li", {}, `and ${more} more in this step`) : null);
  }

  elementButton(edge, element) {
    const { app } = this;
    const bar = edge.barOf.data[element];
    if (edge.kind.data[element] === CTI) return make("span", {}, `${edge.name}: cti ${app.times.write(edge.vs.data[element])}`);
    if (bar < 0) return make("span", {}, `${edge.name}: an external cti`);
    const isRetraction = edge.kind.data[element] === RETRACT;
    const verb = !isRetraction ? "insert" : edge.newVe.data[element] === edge.vs.data[element] ? "removal" : "retraction";
    return make("button", { type: "button", class: "event", click: () => app.select({ edge, bar }) }, `${edge.name}: ${verb} of ${writePayload(edge.textsOf(element))}`);
  }

  /** When a CTI passed its end. */
  finalSince(edge, bar) {
    const elements = edge.elementsOf(bar);
    const last = elements.length ? edge.order.data[elements[elements.length - 1]] : 0;
    const end = edge.endAt(bar, Infinity);
    if (end === edge.barStart.data[bar]) return null;
    for (let i = countBelow(edge.ctiOrder.data, edge.ctiOrder.size, last); i < edge.ctiOrder.size; i++) {
      if (toNumber(edge.ctiTime.data[i]) >= end) return { moment: edge.ctiOrder.data[i] + 1, cti: edge.ctiTime.data[i] };
    }
    return null;
  }

  /** A heading and lines, some of which are events that can be looked at. */
  tell(title, lines) {
    this.reasons.append(make("h3", {}, title), ...lines);
  }

  /** A list of events under the names of their edges, each a button if it is on the page. */
  listEvents(title, events) {
    const { app } = this;
    const items = events.slice(0, MOST_LISTED).map(({ edge, bar, words, text }, i) => make("li", {},
      i && events[i - 1].edge === edge ? null : make("div", { class: "of" }, edge?.name ?? ""),
      bar === undefined ? make("span", {}, text) : make("button", { type: "button", class: "event", click: () => app.select({ edge, bar }) }, describeBar(edge, bar, Infinity, app.times)),
      words ? make("em", {}, ` ${words}`) : null));
    const rest = events.length - items.length;
    return [make("p", { class: "lead" }, title), make("ul", { class: "events" }, ...items, rest > 0 ? make("li", {}, `and ${counted(rest, "more", "more")}`) : null)];
  }
}

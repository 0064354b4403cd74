// What is known of micro-batches by their numbers: of a query that is listened to, or of its checkpoint.
import { make } from "./dom.js";

/** A table, the last micro-batch first. */
export class NumberTable {
  constructor(place, app) {
    this.place = place;
    this.app = app;
    this.show();
  }

  show() {
    const { numbers } = this.app.streams;
    this.place.hidden = !numbers.length;
    if (!numbers.length) return;
    const names = [...new Set(numbers.flatMap((row) => Object.keys(row)))];
    const rows = numbers.toReversed().map((row) => make("tr", {}, ...names.map((name) => make("td", {}, this.write(name, row[name])))));
    this.place.replaceChildren(make("h2", {}, "Micro-batches"),
      make("table", {}, make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name.replaceAll("_", " "))))), make("tbody", {}, ...rows)));
  }

  write(name, value) {
    if (value === null || value === undefined) return "";
    if (name === "cti") return this.app.times.write(BigInt(value));
    return typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 3 }) : String(value);
  }
}

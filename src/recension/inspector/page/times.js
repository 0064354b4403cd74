// Times as people read them, and where an axis has its marks. Times are BigInt ticks, or numbers where one draws.

export const FOREVER = 2n ** 63n - 1n;
export const BEGINNING = -(2n ** 63n);

/** A tick as a number to draw with; the ends of time are infinite. */
export function toNumber(tick) {
  return tick === FOREVER ? Infinity : tick === BEGINNING ? -Infinity : Number(tick);
}

/** Writes times as the streams do: ticks as they are, timestamps in their zone. */
export class TimeWriter {
  constructor(kind) {
    this.isTicks = kind === "ticks";
    this.isNaive = kind === "naive";
    this.zone = this.isTicks || this.isNaive ? "UTC" : kind;
    if (!this.isTicks) {
      const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
      try {
        this.format = new Intl.DateTimeFormat("en-CA", { ...parts, timeZone: this.zone, timeZoneName: "longOffset" });
      } catch {
        this.zone = "UTC";
        this.format = new Intl.DateTimeFormat("en-CA", { ...parts, timeZone: "UTC", timeZoneName: "longOffset" });
      }
    }
  }

  /** A tick, in full. */
  write(tick) {
    if (tick === FOREVER) return "∞";
    if (tick === BEGINNING) return "−∞";
    if (this.isTicks) return tick.toString();
    let milliseconds = tick / 1000n;
    let rest = tick % 1000n;
    if (rest < 0n) { rest += 1000n; milliseconds -= 1n; }
    const part = this.parts(Number(milliseconds));
    if (part === null) return tick.toString();
    const whole = ((milliseconds % 1000n) + 1000n) % 1000n;
    const fraction = whole || rest ? "." + whole.toString().padStart(3, "0") + (rest ? rest.toString().padStart(3, "0") : "") : "";
    const offset = this.isNaive ? "" : part.timeZoneName.replace("GMT", "") || "+00:00";
    return `${part.year}-${part.month}-${part.day} ${part.hour}:${part.minute}:${part.second}${fraction}${offset}`;
  }

  parts(milliseconds) {
    const moment = new Date(milliseconds);
    if (Number.isNaN(moment.getTime())) return null;
    return Object.fromEntries(this.format.formatToParts(moment).map((part) => [part.type, part.value]));
  }

  /** A mark on an axis whose marks are `step` apart: no more than is needed to tell it from its neighbours. */
  mark(value, step) {
    if (this.isTicks) return Math.abs(value) < 1e15 ? value.toLocaleString("en-US").replaceAll(",", " ") : value.toPrecision(6);
    const part = this.parts(value / 1000);
    if (part === null) return String(value);
    const day = `${part.year}-${part.month}-${part.day}`;
    if (step >= DAY) return day;
    if (step >= 60e6) return `${part.hour}:${part.minute}` === "00:00" ? day : `${part.hour}:${part.minute}`;
    if (step >= 1e6) return `${part.hour}:${part.minute}:${part.second}`;
    return `${part.minute}:${part.second}.${String(Math.round((value % 1e6 + 1e6) % 1e6)).padStart(6, "0").replace(/0{3}$/, "")}`;
  }

  /** The day that an axis begins with; nothing for ticks. */
  day(value) {
    const part = this.isTicks ? null : this.parts(value / 1000);
    return part ? `${part.year}-${part.month}-${part.day}` : "";
  }

  /** The marks of an axis from `start` to `end` that has room for `count`. */
  marks(start, end, count) {
    const least = (end - start) / Math.max(1, count);
    const step = this.isTicks ? roundTicks(least) : roundTime(least);
    const marks = [];
    for (let at = Math.ceil(start / step) * step; at <= end && marks.length < 100; at += step) marks.push(at + 0);
    return { marks, step };
  }
}

const DAY = 86400e6;
const NICE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 10e6, 15e6, 30e6,
  60e6, 120e6, 300e6, 600e6, 900e6, 1800e6, 3600e6, 7200e6, 10800e6, 21600e6, 43200e6, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY,
  90 * DAY, 365 * DAY, 3650 * DAY, 36500 * DAY];

function roundTime(least) {
  return NICE.find((step) => step >= least) ?? roundTicks(least);
}

function roundTicks(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return Math.max(1, [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least) ?? 10 * power);
}

/** How long something lasts, in words. */
export function writeLength(ticks, isTicks) {
  if (isTicks) return `${ticks}`;
  const units = [["d", DAY], ["h", 3600e6], ["min", 60e6], ["s", 1e6], ["ms", 1e3], ["µs", 1]];
  const [name, size] = units.find(([, size]) => ticks >= size) ?? units[5];
  return `${+(ticks / size).toFixed(2)} ${name}`;
}

// What was recorded, as the page asks for it: elements by arrival, and bars, which are events with what became of them.
//
// A moment is a number of elements: after so many of them, in the order they came, what was believed? Elements are
// ordered by step, within a step by edge (inputs first), within an edge as they came. All of an edge is in typed
// arrays that grow; nothing is made per event but its place in them.
import { toNumber } from "./times.js";

export const INSERT = 0;
export const RETRACT = 1;
export const CTI = 2;
const NULL = 0xffffffff;

/** An array of numbers that grows. */
class Numbers {
  constructor(kind) { this.kind = kind; this.data = new kind(64); this.size = 0; }
  push(value) {
    if (this.size === this.data.length) this.grow(this.size + 1);
    this.data[this.size++] = value;
  }
  grow(least) {
    if (least <= this.data.length) return;
    const wider = new this.kind(Math.max(least, 2 * this.data.length));
    wider.set(this.data.subarray(0, this.size));
    this.data = wider;
  }
  pushAll(values) {
    this.grow(this.size + values.length);
    this.data.set(values, this.size);
    this.size += values.length;
  }
}

function decode(text, kind) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return new kind(bytes.buffer);
}

/** How many of the sorted numbers are less than the value. */
export function countBelow(numbers, size, value) {
  let low = 0;
  let high = size;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

/** A payload column: texts, and the code of each element's. */
class Column {
  constructor(name) { this.name = name; this.texts = []; this.known = new Map(); this.codes = new Numbers(Uint32Array); }
  append(chunk) {
    const own = Uint32Array.from(chunk.texts, (text) => this.codeOf(text));
    const codes = decode(chunk.codes, Uint32Array);
    this.codes.pushAll(codes.map((code) => (code === NULL ? NULL : own[code])));
  }
  codeOf(text) {
    let code = this.known.get(text);
    if (code === undefined) {
      code = this.texts.length;
      this.texts.push(text);
      this.known.set(text, code);
    }
    return code;
  }
  text(element) {
    const code = this.codes.data[element];
    return code === NULL ? null : this.texts[code];
  }
}

/** The stream on one edge. */
export class Edge {
  constructor(about) {
    this.about = about;
    this.id = about.id;
    this.name = about.of ? `${about.of}: ${about.name}` : about.name;
    this.columns = [];
    this.size = 0;
    this.first = 0;
    for (const [name, kind] of [["kind", Uint8Array], ["step", Uint32Array], ["order", Uint32Array], ["retractions", Uint32Array],
      ["vs", BigInt64Array], ["ve", BigInt64Array], ["newVe", BigInt64Array], ["barOf", Int32Array]]) this[name] = new Numbers(kind);
    // CTIs: when they came, and their times.
    this.ctiOrder = new Numbers(Uint32Array);
    this.ctiTime = new Numbers(BigInt64Array);
    // Bars: the element that first tells of the event, its start, its first end, and its chain of revisions.
    this.bars = 0;
    this.barElement = new Numbers(Uint32Array);
    this.barStart = new Numbers(Float64Array);
    this.barEnd = new Numbers(Float64Array);
    this.barLongest = new Numbers(Float64Array);
    this.barBorn = new Numbers(Float64Array);
    this.barDied = new Numbers(Float64Array);
    this.barPayload = new Numbers(Uint32Array);
    this.revisionFirst = new Numbers(Int32Array);
    this.revisionLast = new Numbers(Int32Array);
    this.revisionElement = new Numbers(Uint32Array);
    this.revisionEnd = new Numbers(Float64Array);
    this.revisionNext = new Numbers(Int32Array);
    this.payloads = new Map();
    this.alive = new Map();
    this.earliest = Infinity;
    this.latest = -Infinity;
    this.orphans = 0;
  }

  /** More elements, whose places in the order of all are known. */
  append(chunk, orders) {
    const begin = this.size;
    if (!begin) this.first = chunk.first;
    if (!this.columns.length) this.columns = chunk.columns.map((column) => new Column(column.name));
    this.columns.forEach((column, i) => column.append(chunk.columns[i]));
    this.kind.pushAll(decode(chunk.kind, Uint8Array));
    this.step.pushAll(decode(chunk.step, Uint32Array));
    this.order.pushAll(orders);
    this.vs.pushAll(decode(chunk.vs, BigInt64Array));
    this.ve.pushAll(decode(chunk.ve, BigInt64Array));
    this.newVe.pushAll(decode(chunk.new_ve, BigInt64Array));
    this.size += chunk.size;
    for (let element = begin; element < this.size; element++) this.take(element);
  }

  take(element) {
    const kind = this.kind.data[element];
    const before = element ? this.retractions.data[element - 1] : 0;
    this.retractions.push(before + (kind === RETRACT ? 1 : 0));
    if (kind === CTI) {
      this.ctiOrder.push(this.order.data[element]);
      this.ctiTime.push(this.vs.data[element]);
      this.widen(toNumber(this.vs.data[element]));
      this.barOf.push(-1);
    } else if (kind === INSERT) {
      this.barOf.push(this.openBar(element, this.ve.data[element], this.order.data[element]));
    } else if (kind === RETRACT) {
      this.barOf.push(this.revise(element));
    } else {
      this.barOf.push(-1);
    }
  }

  openBar(element, end, born) {
    const bar = this.bars++;
    const start = toNumber(this.vs.data[element]);
    const until = toNumber(end);
    this.barElement.push(element);
    this.barStart.push(start);
    this.barEnd.push(until);
    this.barLongest.push(until);
    this.barBorn.push(born);
    this.barDied.push(Infinity);
    this.barPayload.push(this.payloadOf(element));
    this.revisionFirst.push(-1);
    this.revisionLast.push(-1);
    this.widen(start);
    this.widen(until);
    this.put(bar, end);
    return bar;
  }

  revise(element) {
    const payload = this.payloadOf(element);
    const key = `${payload}|${this.vs.data[element]}|${this.ve.data[element]}`;
    const there = this.alive.get(key);
    let bar;
    if (there?.length) {
      bar = there.pop();
      if (!there.length) this.alive.delete(key);
    } else {
      // Its event is from before the recording: it was there all along.
      bar = this.openBar(element, this.ve.data[element], -1);
      this.alive.get(key).pop();
      this.orphans++;
    }
    const revision = this.revisionElement.size;
    const end = this.newVe.data[element];
    this.revisionElement.push(element);
    this.revisionEnd.push(toNumber(end));
    this.revisionNext.push(-1);
    if (this.revisionLast.data[bar] < 0) this.revisionFirst.data[bar] = revision;
    else this.revisionNext.data[this.revisionLast.data[bar]] = revision;
    this.revisionLast.data[bar] = revision;
    this.barLongest.data[bar] = Math.max(this.barLongest.data[bar], toNumber(end));
    this.widen(toNumber(end));
    if (end === this.vs.data[element]) this.barDied.data[bar] = this.order.data[element];
    else this.put(bar, end);
    return bar;
  }

  put(bar, end) {
    const key = `${this.barPayload.data[bar]}|${this.vs.data[this.barElement.data[bar]]}|${end}`;
    const there = this.alive.get(key);
    if (there) there.push(bar); else this.alive.set(key, [bar]);
  }

  widen(time) {
    if (!Number.isFinite(time)) return;
    if (time < this.earliest) this.earliest = time;
    if (time > this.latest) this.latest = time;
  }

  payloadOf(element) {
    let key = "";
    for (const column of this.columns) key += column.codes.data[element] + ",";
    let number = this.payloads.get(key);
    if (number === undefined) this.payloads.set(key, (number = this.payloads.size));
    return number;
  }

  /** The bar that in the end has these texts and times, if there is one. */
  find(texts, vs, ve) {
    const payload = this.payloadNamed(texts);
    return payload === undefined ? undefined : this.alive.get(`${payload}|${vs}|${ve}`);
  }

  /** The bars with these texts and this start, whatever became of their ends. */
  findAnyEnd(texts, vs) {
    const payload = this.payloadNamed(texts);
    const start = BigInt(vs);
    const found = [];
    for (let bar = 0; bar < this.bars; bar++) {
      if (this.barPayload.data[bar] === payload && this.vs.data[this.barElement.data[bar]] === start) found.push(bar);
    }
    return found;
  }

  payloadNamed(texts) {
    let key = "";
    for (const column of this.columns) {
      const text = texts[column.name];
      const code = text === null || text === undefined ? NULL : column.known.get(text);
      if (code === undefined) return undefined;
      key += code + ",";
    }
    return this.payloads.get(key);
  }

  /** The end of a bar at a moment: NaN if nobody had told of it, its start if it was taken back. */
  endAt(bar, moment) {
    if (this.barBorn.data[bar] >= moment) return NaN;
    let end = this.barEnd.data[bar];
    for (let r = this.revisionFirst.data[bar]; r >= 0; r = this.revisionNext.data[r]) {
      if (this.order.data[this.revisionElement.data[r]] >= moment) break;
      end = this.revisionEnd.data[r];
    }
    return end;
  }

  /** The same as a tick. */
  endTickAt(bar, moment) {
    const element = this.barElement.data[bar];
    let end = this.ve.data[element];
    for (let r = this.revisionFirst.data[bar]; r >= 0; r = this.revisionNext.data[r]) {
      const revision = this.revisionElement.data[r];
      if (this.order.data[revision] >= moment) break;
      end = this.newVe.data[revision];
    }
    return end;
  }

  /** The end that was last told: of an event that was taken back, the one before that. */
  saidEndTickAt(bar, moment) {
    const element = this.barElement.data[bar];
    const start = this.vs.data[element];
    let end = this.ve.data[element];
    for (let r = this.revisionFirst.data[bar]; r >= 0; r = this.revisionNext.data[r]) {
      const revision = this.revisionElement.data[r];
      if (this.order.data[revision] >= moment) break;
      if (this.newVe.data[revision] !== start) end = this.newVe.data[revision];
    }
    return end;
  }

  /** The furthest end that was ever told by a moment. */
  longestAt(bar, moment) {
    let longest = this.barEnd.data[bar];
    for (let r = this.revisionFirst.data[bar]; r >= 0; r = this.revisionNext.data[r]) {
      if (this.order.data[this.revisionElement.data[r]] >= moment) break;
      longest = Math.max(longest, this.revisionEnd.data[r]);
    }
    return longest;
  }

  /** The elements that tell of a bar, in order. */
  elementsOf(bar) {
    const elements = this.barBorn.data[bar] < 0 ? [] : [this.barElement.data[bar]];
    for (let r = this.revisionFirst.data[bar]; r >= 0; r = this.revisionNext.data[r]) elements.push(this.revisionElement.data[r]);
    return elements;
  }

  /** The CTI at a moment, as a tick; undefined if there is none. */
  ctiAt(moment) {
    const seen = countBelow(this.ctiOrder.data, this.ctiOrder.size, moment);
    return seen ? this.ctiTime.data[seen - 1] : undefined;
  }

  /** What came by a moment. */
  countsAt(moment) {
    const seen = countBelow(this.order.data, this.size, moment);
    const ctis = countBelow(this.ctiOrder.data, this.ctiOrder.size, moment);
    const retractions = seen ? this.retractions.data[seen - 1] : 0;
    return { seen, retractions, ctis, inserts: seen - retractions - ctis };
  }

  /** The texts of an element's payload, by column. */
  textsOf(element) {
    return Object.fromEntries(this.columns.map((column) => [column.name, column.text(element)]));
  }
}

/** All that was recorded, and the order in which it came. */
export class Streams {
  constructor(data) {
    this.title = data.title;
    this.leftOut = data.left_out;
    this.unit = data.unit;
    this.plan = data.plan;
    this.times = data.times;
    this.edges = new Map(data.plan.filter((about) => about.recorded).map((about) => [about.id, new Edge(about)]));
    this.size = 0;
    this.steps = [];
    this.stepEnds = new Numbers(Uint32Array);
    this.stepAt = [];
    this.fed = [];
    this.ctiMoments = new Numbers(Uint32Array);
    this.append(data);
  }

  /** More steps; true if there were any. */
  append(data) {
    this.isLive = data.live;
    this.notes = [...data.notes, ...this.leftOut];
    this.numbers = data.numbers;
    for (const about of this.plan) Object.assign(about, data.measured[about.id]);
    const numbers = decode(data.steps, Uint32Array);
    const at = decode(data.at, BigInt64Array);
    const come = [...this.edges.keys()].filter((id) => data.edges[id]).map((id) => {
      const chunk = data.edges[id];
      return { id, chunk, steps: decode(chunk.step, Uint32Array), kinds: decode(chunk.kind, Uint8Array), next: 0, orders: new Uint32Array(chunk.size), isAnswer: this.edges.get(id).about.is_answer };
    });
    numbers.forEach((number, i) => {
      for (const one of come) {
        while (one.next < one.steps.length && one.steps[one.next] === number) {
          one.orders[one.next] = this.size++;
          if (one.kinds[one.next] === CTI && one.isAnswer) this.ctiMoments.push(this.size);
          one.next++;
        }
      }
      this.steps.push(number);
      this.stepEnds.push(this.size);
      this.stepAt.push(at[i]);
      this.fed.push(data.fed[i]);
    });
    for (const one of come) this.edges.get(one.id).append(one.chunk, one.orders);
    return numbers.length > 0;
  }

  /** The number of the last step there is. */
  get lastStep() { return this.steps.length ? this.steps[this.steps.length - 1] : 0; }

  /** The place of the step that a moment is in: the one that gave its last element. */
  stepAtMoment(moment) {
    return moment ? countBelow(this.stepEnds.data, this.stepEnds.size, moment) : -1;
  }

  /** The next or the last moment of its kind, from a moment on. */
  move(moment, unit, way) {
    if (unit === "element") return Math.min(this.size, Math.max(0, moment + way));
    const ends = unit === "step" ? this.stepEnds : this.ctiMoments;
    if (way > 0) {
      const next = countBelow(ends.data, ends.size, moment + 1);
      return next < ends.size ? ends.data[next] : this.size;
    }
    const last = countBelow(ends.data, ends.size, moment) - 1;
    return last >= 0 ? ends.data[last] : 0;
  }

  /** How many elements an edge gave a second of the wall clock, in the last ten before a moment; 0 if that is too short. */
  rateAt(edge, moment) {
    const place = this.stepAtMoment(moment);
    if (place < 0) return 0;
    let first = place;
    while (first > 0 && this.stepAt[place] - this.stepAt[first - 1] <= 10000000n) first--;
    const seconds = Number(this.stepAt[place] - this.stepAt[first]) / 1e6;
    const since = first ? this.stepEnds.data[first - 1] : 0;
    return seconds < 1 ? 0 : (edge.countsAt(moment).seen - edge.countsAt(since).seen) / seconds;
  }

  /** The elements of an edge that came in a step, by its place. */
  elementsInStep(edge, place) {
    const from = place ? this.stepEnds.data[place - 1] : 0;
    const begin = countBelow(edge.order.data, edge.size, from);
    const end = countBelow(edge.order.data, edge.size, this.stepEnds.data[place]);
    return Array.from({ length: end - begin }, (_, i) => begin + i);
  }

  /** The edges that an edge rests on, or that rest on it. */
  reach(id, way) {
    const next = (at) => way === "up" ? this.plan.filter((one) => one.inputs.includes(at)).map((one) => one.id) : this.plan.find((one) => one.id === at).inputs;
    const found = new Set();
    const waiting = [id];
    while (waiting.length) for (const other of next(waiting.pop())) if (!found.has(other)) { found.add(other); waiting.push(other); }
    return found;
  }

  /** From the first time to the last that is not an end of time. */
  extent() {
    let start = Infinity;
    let end = -Infinity;
    for (const edge of this.edges.values()) {
      start = Math.min(start, edge.earliest);
      end = Math.max(end, edge.latest);
    }
    if (!Number.isFinite(start)) return [0, 1];
    const room = (end - start || 1) * 0.03;
    return [start - room, end + room];
  }
}

/** Two edges laid over each other. Equal payloads and starts are found once; at a moment only their ends are compared. */
export class Comparison {
  constructor(left, right) {
    this.left = left;
    this.right = right;
    const names = left.columns.map((column) => column.name);
    const isSame = names.length === right.columns.length && names.every((name) => right.columns.some((column) => column.name === name));
    this.isPossible = isSame || !left.bars || !right.bars;
    if (!this.isPossible) return;
    const numbers = new Map();
    const numberOf = (payload, start) => {
      const key = `${payload}|${start}`;
      let number = numbers.get(key);
      if (number === undefined) numbers.set(key, (number = numbers.size));
      return number;
    };
    const payloads = new Map();
    const asLeft = (own, element) => {
      if (!payloads.has(own)) payloads.set(own, left.payloadNamed(right.textsOf(element)) ?? `right ${own}`);
      return payloads.get(own);
    };
    const startOf = (edge, bar) => edge.vs.data[edge.barElement.data[bar]];
    this.leftNumbers = Uint32Array.from({ length: left.bars }, (_, bar) => numberOf(left.barPayload.data[bar], startOf(left, bar)));
    this.rightNumbers = Uint32Array.from({ length: right.bars }, (_, bar) => numberOf(asLeft(right.barPayload.data[bar], right.barElement.data[bar]), startOf(right, bar)));
    // Of each number the bars of the left edge that are there and have no match yet, as a chain.
    this.heads = new Int32Array(numbers.size);
    this.nexts = new Int32Array(left.bars);
  }

  /** The bars that only one of the two has at a moment; columns are matched by name, null if they are others. */
  at(moment) {
    if (!this.isPossible) return null;
    const { left, right, heads, nexts } = this;
    heads.fill(-1);
    for (let bar = left.bars - 1; bar >= 0; bar--) {
      if (!(left.endAt(bar, moment) > left.barStart.data[bar])) continue;
      nexts[bar] = heads[this.leftNumbers[bar]];
      heads[this.leftNumbers[bar]] = bar;
    }
    const onlyRight = new Set();
    for (let bar = 0; bar < right.bars; bar++) {
      if (right.endAt(bar, moment) > right.barStart.data[bar] && !this.match(bar, moment)) onlyRight.add(bar);
    }
    const onlyLeft = new Set();
    for (const head of heads) for (let bar = head; bar >= 0; bar = nexts[bar]) onlyLeft.add(bar);
    return { onlyLeft, onlyRight };
  }

  /** Take a bar with the same end out of its chain; false if there is none. */
  match(bar, moment) {
    const { left, right, heads, nexts } = this;
    const number = this.rightNumbers[bar];
    const end = right.endAt(bar, moment);
    const isExact = Number.isSafeInteger(end) || !Number.isFinite(end);
    let last = -1;
    for (let other = heads[number]; other >= 0; last = other, other = nexts[other]) {
      if (left.endAt(other, moment) !== end) continue;
      if (!isExact && left.endTickAt(other, moment) !== right.endTickAt(bar, moment)) continue;
      if (last < 0) heads[number] = nexts[other]; else nexts[last] = nexts[other];
      return true;
    }
    return false;
  }
}

/** What changed on an edge from a moment to a later one. */
export function changesBetween(edge, one, other) {
  const [from, to] = one < other ? [one, other] : [other, one];
  const come = new Set();
  const gone = new Set();
  const changed = new Set();
  const begin = countBelow(edge.order.data, edge.size, from);
  const end = countBelow(edge.order.data, edge.size, to);
  for (let element = begin; element < end; element++) {
    const bar = edge.barOf.data[element];
    if (bar < 0) continue;
    const was = edge.endAt(bar, from);
    const is = edge.endAt(bar, to);
    const start = edge.barStart.data[bar];
    const wasThere = was > start;
    const isThere = is > start;
    if (wasThere && !isThere) gone.add(bar);
    else if (!wasThere && isThere) come.add(bar);
    else if (wasThere && was !== is) changed.add(bar);
  }
  return { come, gone, changed };
}

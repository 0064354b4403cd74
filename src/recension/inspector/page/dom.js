// Elements of the page. Text only ever becomes text: nothing here, and nothing that uses it, makes markup of data.

/** An element with attributes, listeners (functions) and children (elements or texts). */
export function make(tag, attributes = {}, ...children) {
  const element = tag === "svg" || tag === "path" ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** The element of the page with this id. */
export function byId(id) { return document.getElementById(id); }

/** A count as people read it. */
export function count(n) { return n.toLocaleString("en-US"); }

/** A count with its noun. */
export function counted(n, one, many = one + "s") { return `${count(n)} ${n === 1 ? one : many}`; }

/** A payload in one line; the first of these columns may be left out. */
export function writePayload(texts, except = null) {
  return Object.entries(texts).filter(([name]) => name !== except).map(([name, text]) => `${name} ${text ?? "null"}`).join(", ");
}

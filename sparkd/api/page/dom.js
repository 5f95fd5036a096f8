// Elements are made by their names and their text is set as text. Nothing that was received is ever read as HTML: a name
// or a line of an engine's log may hold anything.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
export const $ = (id) => document.getElementById(id);

const shown = new WeakMap();

// Put what `make` returns into the element, if `data` is not what it was made from before. Whoever has the focus or has
// opened something in it keeps it, by data-key.
export function put(element, data, make) {
  const text = JSON.stringify(data);
  if (shown.get(element) === text) return;
  shown.set(element, text);
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const open = new Set([...element.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  element.replaceChildren(...[make()].flat(Infinity).filter(Boolean));
  for (const each of element.querySelectorAll("details")) if (open.has(each.dataset.key)) each.open = true;
  if (focused) [...element.querySelectorAll("[data-key]")].find((each) => each.dataset.key === focused)?.focus();
}

export function text(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

export const plural = (count, one, many) => `${count} ${count === 1 ? one : many || `${one}s`}`;

export function clock(seconds) {
  const at = new Date(seconds * 1000);
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  if (at.toDateString() === new Date().toDateString()) return time;
  return `${at.toLocaleDateString([], { month: "short", day: "numeric" })}, ${time}`;
}

export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

export const gib = (kib) => (kib / 1048576).toFixed(kib < 104857600 ? 1 : 0);

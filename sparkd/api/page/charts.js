// Curves of the last hour, as SVG. A gap is where nothing was known. The pointer, or the arrow keys, read a moment.

import { clock, h, s } from "./dom.js";

const HOUR = 3600;
const [LEFT, RIGHT, TOP, BOTTOM] = [60, 10, 8, 22];
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

// Keeps what the daemon has sent, an hour at most.
export class Hour {
  constructor() {
    this.clear();
  }

  clear() {
    this.last = 0;
    this.samples = [];
    this.whole = null;
  }

  // True if more has to be asked for from the beginning: the daemon has started anew.
  add(history) {
    if (history.last < this.last) {
      this.clear();
      return true;
    }
    history.at.forEach((at, place) => {
      this.samples.push({
        at,
        phase: history.phases[place],
        memory: history.memory_available[place],
        tokens: history.tokens_per_second[place],
        running: history.running[place],
        rails: history.rails.map((rail) => sum(rail.received[place], rail.sent[place])),
      });
    });
    this.last = history.last;
    this.whole = history;
    const newest = this.samples.at(-1)?.at || 0;
    this.samples = this.samples.filter((sample) => sample.at > newest - HOUR);
    return false;
  }
}

const sum = (a, b) => (a === null || b === null ? null : a + b);

function nice(value, base) {
  if (!(value > 0)) return 1;
  const power = base ** Math.floor(Math.log(value) / Math.log(base));
  const steps = base === 10 ? [1, 1.5, 2, 3, 4, 5, 6, 8, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  return power * steps.find((step) => power * step >= value);
}

export const rate = (value) => {
  const units = ["B/s", "kB/s", "MB/s", "GB/s"];
  const place = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(value, 1)) / 3)));
  const number = value / 1000 ** place;
  return `${number >= 100 || place === 0 || Number.isInteger(number) ? number.toFixed(0) : number.toFixed(1)} ${units[place]}`;
};
export const coarse = (value) => `${Math.round(value / 2 ** 30)} GiB`;
export const bytes = (value) => `${(value / 2 ** 30).toFixed(value < 100 * 2 ** 30 ? 1 : 0)} GiB`;

// `lines`: {name, values}; `mark`: a level to draw, with its name; `show`: a value in words.
export function chart({ key, title, lines, samples, show, tick, top, marked, base = 10, narrow }) {
  const [width, height] = narrow ? [340, 170] : [380, 180];
  const known = lines.flatMap((line) => line.values).filter((value) => value !== null);
  const figure = h("figure", { class: "chart" });
  const head = h("figcaption", {}, h("span", { class: "chart-title" }, title));
  figure.append(head);
  if (!known.length) {
    figure.append(h("p", { class: "empty" }, "Nothing is known of this in the last hour."));
    return figure;
  }
  const most = top || nice(Math.max(...known, marked?.value || 0), base);
  const end = samples.at(-1).at;
  const x = (at) => LEFT + (width - LEFT - RIGHT) * (1 - (end - at) / HOUR);
  const y = (value) => TOP + (height - TOP - BOTTOM) * (1 - Math.min(value / most, 1));
  const readout = h("output", { class: "readout" });
  head.append(readout);
  const words = (line, place) => (line.values[place] === null ? "not known" : show(line.values[place]));
  const keys = lines.map((line) => h("span", {}, line.name));
  const tell = (place) => {
    const newest = place === samples.length - 1;
    const moment = newest ? "" : clock(samples[place].at);
    if (lines.length === 1) readout.textContent = [moment, words(lines[0], place)].filter(Boolean).join(": ");
    else {
      readout.textContent = moment;
      lines.forEach((line, which) => { keys[which].textContent = `${line.name} ${words(line, place)}`; });
    }
  };
  const now = lines.map((line) => `${lines.length > 1 ? `${line.name} ` : ""}${words(line, samples.length - 1)}`).join(", ");
  const peak = show(Math.max(...known));
  const cursor = s("line", { y1: TOP, y2: height - BOTTOM, class: "cursor", visibility: "hidden" });
  const svg = s("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "data-key": `chart-${key}`,
    "aria-label": `${title}, the last hour. Now ${now}. At most ${peak}. Arrow keys read a moment.`,
  });
  for (const part of [0, 0.5, 1]) {
    const level = y(most * part);
    svg.append(s("line", { x1: LEFT, x2: width - RIGHT, y1: level, y2: level, class: "grid" }));
    svg.append(s("text", { x: LEFT - 6, y: level + 4, "text-anchor": "end", class: "tick" }, (tick || show)(most * part)));
  }
  for (const [minutes, words, anchor] of [[60, "1 h ago", "start"], [30, "30 min", "middle"], [0, "now", "end"]]) {
    svg.append(s("text", { x: x(end - minutes * 60), y: height - 6, "text-anchor": anchor, class: "tick" }, words));
  }
  if (marked?.value) {
    svg.append(s("line", { x1: LEFT, x2: width - RIGHT, y1: y(marked.value), y2: y(marked.value), class: "level-line" }));
    svg.append(s("text", { x: width - RIGHT, y: y(marked.value) - 4, "text-anchor": "end", class: "tick" }, marked.name));
  }
  lines.forEach((line, place) => {
    svg.append(s("path", { d: path(line.values, samples, x, y), class: `curve c${place}`, "stroke-dasharray": DASHES[place % DASHES.length] }));
  });
  svg.append(cursor);
  reading(svg, samples, x, width, cursor, tell);
  tell(samples.length - 1);
  figure.append(svg);
  if (lines.length > 1) {
    figure.append(h("ul", { class: "keys" }, lines.map((line, place) =>
      h("li", {}, s("svg", { viewBox: "0 0 26 8", width: 26, height: 8, "aria-hidden": "true" },
        s("line", { x1: 0, x2: 26, y1: 4, y2: 4, class: `curve c${place}`, "stroke-dasharray": DASHES[place % DASHES.length] })),
        keys[place]))));
  }
  return figure;
}

function path(values, samples, x, y) {
  let d = "";
  let before = null;
  values.forEach((value, place) => {
    const { at } = samples[place];
    if (value === null) before = null;
    else {
      d += `${before !== null && at - before < 60 ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      // A single point between two gaps is to be seen too.
      if (before === null) d += "h.01";
      before = at;
    }
  });
  return d;
}

function reading(svg, samples, x, width, cursor, told) {
  let place = samples.length - 1;
  const show = (next) => {
    place = Math.min(Math.max(next, 0), samples.length - 1);
    const at = x(samples[place].at);
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    cursor.setAttribute("visibility", "visible");
    told(place);
  };
  const rest = () => {
    cursor.setAttribute("visibility", "hidden");
    place = samples.length - 1;
    told(place);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const wanted = ((event.clientX - box.left) / box.width) * width;
    let best = 0;
    samples.forEach((sample, index) => {
      if (Math.abs(x(sample.at) - wanted) < Math.abs(x(samples[best].at) - wanted)) best = index;
    });
    show(best);
  });
  svg.addEventListener("pointerleave", rest);
  svg.addEventListener("blur", rest);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30, Home: -1e9, End: 1e9 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(place + step);
  });
}

// The phases of the hour as one band, each with its name where there is room.
export function band(samples, narrow) {
  const width = narrow ? 340 : 1160;
  const end = samples.at(-1).at;
  const x = (at) => width * (1 - (end - at) / HOUR);
  const runs = [];
  samples.forEach((sample) => {
    const run = runs.at(-1);
    if (run && run.phase === sample.phase && sample.at - run.until < 60) run.until = sample.at;
    else {
      if (run && sample.at - run.until < 60) run.until = sample.at;
      runs.push({ phase: sample.phase, from: sample.at, until: sample.at });
    }
  });
  const words = runs.map((run) => `${run.phase} from ${clock(run.from)} to ${clock(run.until)}`).join(", ");
  return s("svg", { viewBox: `0 0 ${width} 24`, class: "band", role: "img", "aria-label": `Phases: ${words}` },
    runs.map((run) => {
      const [from, to] = [x(run.from), Math.max(x(run.until), x(run.from) + 2)];
      return [
        s("rect", { x: from, y: 1, width: to - from, height: 22, rx: 3, class: `span ${run.phase}` }, s("title", {}, `${run.phase} from ${clock(run.from)}`)),
        to - from > run.phase.length * 7.4 + 8 && s("text", { x: (from + to) / 2, y: 16, "text-anchor": "middle" }, run.phase),
      ];
    }));
}

// The picture of the ring: nodes with their ranks, and each cable as its two rails. What a colour says, a shape says too.

import { gib, h, s } from "./dom.js";

export const RAILS = {
  good: "as planned",
  idle: "cabled, not set up",
  fault: "has a carrier, is not as planned",
  dark: "no carrier",
  unknown: "not known",
};
export const RANKS = {
  ready: "serves",
  starting: "starting",
  stopping: "stopping",
  ended: "ended",
  down: "down",
  unknown: "not known",
};

// The state of both ends of each link of the plan.
export function links(plan, ring) {
  const ends = new Map();
  for (const part of ring.fabric) for (const end of part.ends || []) ends.set(`${part.node} ${end.device}`, end);
  const rates = new Map();
  for (const rail of ring.rails) {
    for (const end of [rail.a, rail.b]) rates.set(`${end.node} ${end.device}`, rail);
  }
  return plan.links.map((link) => {
    const key = ({ node, device }) => `${node} ${device}`;
    const seen = link.ends.map((end) => ends.get(key(end)));
    return {
      cable: link.cable,
      domain: link.domain,
      ends: link.ends.map((end, place) => ({ ...end, state: one(seen[place], ring) })),
      state: worst(seen.map((end) => one(end, ring))),
      rate: rates.get(key(link.ends[0])) || null,
    };
  });
}

function one(end, ring) {
  if (!end) return "unknown";
  if (!end.carrier) return "dark";
  if (end.verified) return "good";
  return ring.want === "up" ? "fault" : "idle";
}

const worst = (states) => ["dark", "fault", "unknown", "idle", "good"].find((state) => states.includes(state));

export const speed = (rate) => (rate && rate.gbps !== null ? `${rate.gbps.toPrecision(3)} Gb/s` : "");

const WIDE = { width: 620, height: 400, node: [168, 78], font: 15, small: 12.5, gap: 7, name: 15 };
const NARROW = { width: 340, height: 330, node: [116, 70], font: 13, small: 11, gap: 5, name: 11 };

function places(count, size) {
  const { width: w, height: t, node } = size;
  const [left, right] = [node[0] / 2 + 4, w - node[0] / 2 - 4];
  const [top, bottom] = [node[1] / 2 + 4, t - node[1] / 2 - 4];
  if (count === 2) return [[left, top + 34], [right, top + 34]];
  if (count === 3) return [[w / 2, top], [right, bottom], [left, bottom]];
  return [[left, top], [right, top], [right, bottom], [left, bottom]];
}

export function picture(ring, plan, narrow) {
  const size = narrow ? NARROW : WIDE;
  const nodes = plan.order || plan.cluster.nodes.map((node) => node.name);
  const spots = new Map(places(nodes.length, size).map((spot, place) => [nodes[place], spot]));
  const all = links(plan, ring);
  const lines = plan.cables.map((cable) => drawCable(cable, all, spots, size, plan.cables.length, nodes.length));
  const boxes = nodes.map((name) => drawNode(name, ring, spots.get(name), size));
  const height = nodes.length === 2 ? size.node[1] + 76 : size.height;
  return s(
    "svg",
    { viewBox: `0 0 ${size.width} ${height}`, class: "triangle", role: "img", "aria-labelledby": "triangle-title" },
    s("title", { id: "triangle-title" }, spoken(plan, all, ring)),
    lines.map(([line]) => line),
    boxes,
    lines.map(([, label]) => label),
  );
}

function drawCable(cable, all, spots, size, count, nodes) {
  const [a, b] = [spots.get(cable.from.node), spots.get(cable.to.node)];
  if (!a || !b) return [null, null];
  const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
  const length = Math.hypot(dx, dy);
  const normal = [-dy / length, dx / length];
  // Two nodes may have two cables, one beside the other.
  const aside = nodes === 2 && count > 1 ? (cable.index - 0.5) * 44 : 0;
  const rails = all.filter((link) => link.cable === cable.index);
  const group = s("g", { class: "cable" });
  rails.forEach((rail, place) => {
    const off = aside + (place - (rails.length - 1) / 2) * size.gap * 2;
    const [x1, y1, x2, y2] = [a[0], a[1], b[0], b[1]].map((value, axis) => value + normal[axis % 2] * off);
    group.append(s("line", { x1, y1, x2, y2, class: `rail ${rail.state}` }));
    if (rail.state === "good") group.append(s("line", { x1, y1, x2, y2, class: "flow" }));
    if (rail.state === "dark") {
      const [x, y] = [x1 + (x2 - x1) * 0.34, y1 + (y2 - y1) * 0.34];
      group.append(s("path", { d: `M${x - 6} ${y - 6}l12 12m0-12l-12 12`, class: "cross" }));
    }
  });
  return [group, label(rails, [(a[0] + b[0]) / 2 + normal[0] * aside, (a[1] + b[1]) / 2 + normal[1] * aside], size)];
}

function label(rails, [x, y], size) {
  const state = worst(rails.map((rail) => rail.state));
  const rates = rails.map((rail) => rail.rate?.gbps).filter((rate) => rate !== null && rate !== undefined);
  const total = rates.reduce((sum, rate) => sum + rate, 0);
  const words = state === "good" ? (rates.length ? `${total.toPrecision(3)} Gb/s` : "") : RAILS[state].split(",")[0];
  if (!words) return null;
  const width = words.length * size.small * 0.56 + 14;
  return s(
    "g",
    { class: `tag ${state}` },
    s("rect", { x: x - width / 2, y: y - 11, width, height: 22, rx: 11 }),
    s("text", { x, y: y + size.small * 0.36, "text-anchor": "middle", "font-size": size.small }, words),
  );
}

function drawNode(name, ring, [x, y], size) {
  const rank = ring.ranks.find((each) => each.node === name);
  const memory = ring.memory?.find((each) => each.node === name);
  const [w, t] = size.node;
  const [left, top] = [x - w / 2, y - t / 2];
  const state = silent(name, ring) ? "silent" : rank?.state || "unknown";
  const short = name.length > size.name ? `${name.slice(0, size.name - 1)}…` : name;
  const words = state === "silent" ? "silent" : rank?.stage && state === "starting" ? rank.stage : RANKS[state];
  return s(
    "g",
    { class: `node ${state}` },
    s("rect", { x: left, y: top, width: w, height: t, rx: 10 }),
    s("text", { x: left + 12, y: top + 22, "font-size": size.font, class: "name" }, short),
    s("text", { x: left + w - 12, y: top + 22, "font-size": size.small, "text-anchor": "end", class: "muted" },
      rank ? `rank ${rank.rank}` : ""),
    mark(state, left + 18, top + 40),
    s("text", { x: left + 31, y: top + 44.5, "font-size": size.small }, words || state),
    gauge(memory, left + 12, top + t - 16, w - 24),
  );
}

// One shape for each state.
export function mark(state, x, y) {
  const shapes = {
    ready: s("circle", { cx: x, cy: y, r: 5 }),
    starting: s("path", { d: `M${x - 5} ${y}a5 5 0 0 1 10 0z` }),
    stopping: s("path", { d: `M${x - 5} ${y}a5 5 0 0 0 10 0z` }),
    ended: s("path", { d: `M${x - 5} ${y - 5}h10v10h-10z` }),
    silent: s("path", { d: `M${x} ${y - 6}l6 11h-12z` }),
    down: s("circle", { cx: x, cy: y, r: 4, class: "hollow" }),
  };
  return s("g", { class: "mark", "aria-hidden": "true" }, shapes[state] || s("path", { d: `M${x - 5} ${y}h10`, class: "hollow" }));
}

function gauge(memory, x, y, width) {
  if (!memory?.total_kib) return null;
  const used = Math.min(1, Math.max(0, 1 - memory.available_kib / memory.total_kib));
  return [
    s("rect", { x, y, width, height: 6, rx: 3, class: "track" }),
    s("rect", { x, y, width: width * used, height: 6, rx: 3, class: low(memory) ? "level low" : "level" }),
  ];
}

export const low = (memory) => memory.floor_kib > 0 && memory.available_kib < 1.5 * memory.floor_kib;

export function silent(name, ring) {
  const peer = ring.peers.find((each) => each.node === name);
  return Boolean(peer && (peer.error || peer.age === null));
}

function spoken(plan, all, ring) {
  const bad = all.filter((link) => link.state !== "good" && link.state !== "idle");
  const ranks = ring.ranks.map((rank) => `rank ${rank.rank} on ${rank.node} ${RANKS[rank.state]}`).join(", ");
  return `Ring of ${plan.cluster.nodes.length} nodes: ${ranks}. ` +
    (bad.length ? `${bad.length} of ${all.length} rails are not as they should be.` : "All rails are well.");
}

export function table(ring, plan) {
  const all = links(plan, ring);
  const row = (link) => {
    const [a, b] = link.ends;
    return h("tr", {}, h("th", { scope: "row" }, `${a.node} ${a.device}`), h("td", {}, RAILS[a.state]),
      h("th", { scope: "row" }, `${b.node} ${b.device}`), h("td", {}, RAILS[b.state]), h("td", {}, speed(link.rate) || "not measured"));
  };
  const head = ["One end", "state", "Other end", "state", "Rate"].map((words) => h("th", { scope: "col" }, words));
  return h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, all.map(row)));
}

export function legend() {
  const line = (state) =>
    h("li", {}, s("svg", { viewBox: "0 0 34 10", width: 34, height: 10, "aria-hidden": "true" },
      s("line", { x1: 1, y1: 5, x2: 33, y2: 5, class: `rail ${state}` }),
      state === "dark" && s("path", { d: "M12 0l10 10m0-10l-10 10", class: "cross" })), ` ${RAILS[state]}`);
  return Object.keys(RAILS).map(line);
}

export const memoryWords = (memory) =>
  memory?.total_kib ? `${gib(memory.available_kib)} of ${gib(memory.total_kib)} GiB left` : "memory not known";

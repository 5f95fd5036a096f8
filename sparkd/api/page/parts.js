// The parts of the page that are words: ranks, findings, incidents, events, checks.

import { clock, h, plural, s, span } from "./dom.js";
import { RANKS, low, mark, memoryWords, silent } from "./ring.js";

const icon = (state) => s("svg", { viewBox: "0 0 14 14", width: 14, height: 14, class: `icon ${state}`, "aria-hidden": "true" }, mark(state, 7, 7));

export function numbers(ring) {
  const serving = ring.ranks.filter((rank) => rank.state === "ready").length;
  const left = ring.budget ? Math.max(ring.budget.restarts - ring.budget.used, 0) : null;
  const work = ring.work;
  const none = ring.ranks.some((rank) => rank.rank === 0 && rank.state === "ready") ? "not told by this engine" : "nothing serves";
  const rows = [
    ["Tokens per second", work ? work.tokens_per_second.toFixed(work.tokens_per_second < 100 ? 1 : 0) : "–", work ? "" : none],
    ["Requests", work ? `${work.running}` : "–", work ? (work.queued ? `running, ${work.queued} waiting` : "running") : none],
    ["Ranks that serve", `${serving}`, `of ${ring.ranks.length}`],
    ["Restarts left", left === null ? "–" : `${left}`, ring.budget ? `of ${ring.budget.restarts} in ${span(ring.budget.window)}` : ""],
  ];
  return rows.map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("b", {}, value), more && ` ${more}`)));
}

export function ranks(ring) {
  return ring.ranks.map((rank) => {
    const memory = ring.memory?.find((each) => each.node === rank.node);
    const peer = ring.peers.find((each) => each.node === rank.node);
    const gone = silent(rank.node, ring);
    const state = gone ? "silent" : rank.state;
    return h("li", { class: `rank ${state}` },
      h("div", { class: "rank-head" }, icon(state), h("strong", {}, rank.node), h("span", { class: "muted" }, ` rank ${rank.rank}`),
        h("span", { class: "state" }, gone ? "silent" : RANKS[rank.state] || rank.state)),
      gone && h("p", { class: "fault" }, peer.age === null ? "It has not answered yet" : `It has not answered for ${span(peer.age)}`, peer.error && `: ${peer.error}`),
      stage(rank),
      bar(memory, rank.node, gone));
  });
}

function stage(rank) {
  if (rank.state !== "starting" && !rank.text) return null;
  const { progress } = rank;
  const words = [rank.state === "ready" ? "" : rank.stage, progress && `${progress.done} of ${progress.total}`, rank.text].filter(Boolean).join(", ");
  return [
    words && h("p", { class: "muted break" }, words),
    progress?.total > 0 && rank.state === "starting" &&
      h("progress", { max: progress.total, value: progress.done, "aria-label": `${rank.node}: ${rank.stage}` }),
  ];
}

function bar(memory, node, gone) {
  if (!memory?.total_kib) return h("p", { class: "muted" }, "Memory not known");
  const used = memory.total_kib - memory.available_kib;
  const floor = memory.floor_kib ? `; its rank is killed below ${(memory.floor_kib / 1048576).toFixed(0)} GiB` : "";
  const near = low(memory);
  return [
    h("p", { class: near && !gone ? "fault" : "muted" }, "Memory: ", memoryWords(memory), gone ? " when it was last heard" : [near && " – near the floor", floor]),
    h("meter", {
      min: 0, max: memory.total_kib, value: used, high: memory.floor_kib ? memory.total_kib - 1.5 * memory.floor_kib : memory.total_kib,
      optimum: 0, "aria-label": `Memory of ${node} in use`,
    }),
  ];
}

const SEVERITY = { refuse: "Refuses a start", repair: "Being put right", warn: "Worth a look" };

export const finding = (found) =>
  h("li", { class: `finding ${found.severity}` },
    h("p", { class: "finding-head" }, h("span", { class: "badge" }, SEVERITY[found.severity] || found.severity), ` ${found.node}: ${found.subject}`),
    h("p", { class: "break" }, found.observed),
    h("p", { class: "muted break" }, `Expected: ${found.expected}`),
    h("p", { class: "fix break" }, h("b", {}, "Fix: "), found.fix),
    h("p", { class: "id" }, found.id));

// The same finding may come from several nodes, or from ring and doctor.
export function unique(findings) {
  const order = ["refuse", "repair", "warn"];
  const known = new Map(findings.map((each) => [JSON.stringify([each.id, each.node, each.subject]), each]));
  return [...known.values()].sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
}

// By epoch, the newest first; each with what its nodes kept.
export function byEpoch(answer) {
  const epochs = new Map();
  for (const node of answer.nodes) {
    for (const incident of node.incidents) {
      if (!epochs.has(incident.epoch)) epochs.set(incident.epoch, []);
      epochs.get(incident.epoch).push(incident);
    }
  }
  return [...epochs].sort(([a], [b]) => b - a);
}

export function incidents(answer, open) {
  const silentNodes = answer.nodes.filter((node) => node.error);
  const list = byEpoch(answer).slice(0, 20).map(([epoch, parts]) => incident(epoch, parts, open));
  if (!list.length) list.push(h("li", { class: "empty" }, "Nothing has failed, as far as the nodes that answer have kept."));
  return [...list, ...silentNodes.map((node) => h("li", { class: "fault break" }, `${node.node}: ${node.error}`))];
}

function incident(epoch, parts, open) {
  const root = parts.find((part) => part.node === part.root) || parts[0];
  const first = parts.find((part) => part.node === root.root && part.first) || parts.find((part) => part.first);
  const evidence = h("div", { class: "evidence" });
  const details = h("details", { "data-key": `incident-${epoch}` }, h("summary", { "data-key": `summary-${epoch}` }, "Evidence of each node"), evidence);
  details.addEventListener("toggle", () => details.open && open(epoch, evidence));
  return h("li", { class: "incident" },
    h("p", { class: "when" }, h("time", { datetime: new Date(root.at * 1000).toISOString() }, clock(root.at)), ` · epoch ${epoch} · rank ${root.rank} (${root.root})`),
    h("p", { class: "what break" }, root.sentence),
    first && h("pre", { class: "first", tabindex: "0", "aria-label": `First error of ${first.node}` }, first.first),
    details);
}

export function evidence(detail) {
  return detail.nodes.map((node) =>
    h("section", {},
      h("h3", {}, node.node),
      h("p", { class: "break" }, node.error || node.incident?.outcome || "It has kept nothing of this."),
      (node.incident?.missing || []).map((words) => h("p", { class: "fault break" }, words)),
      Object.entries(node.files).map(([name, words]) =>
        h("details", { "data-key": `file-${detail.epoch}-${node.node}-${name}` }, h("summary", {}, name),
          h("pre", { tabindex: "0", role: "region", "aria-label": `${name} of ${node.node}` }, words)))));
}

export const events = (list) =>
  list.map((event) =>
    h("li", { class: event.kind === "finding" || event.kind === "error" ? "event bad" : "event" }, h("time", { datetime: new Date(event.at * 1000).toISOString() }, clock(event.at)),
      h("span", { class: "kind" }, event.kind), h("span", { class: "break" }, event.text)));

const VERDICT = { pass: "passes", fail: "fails", unknown: "not known", "not-applicable": "does not apply" };

export function doctor(answer) {
  const group = (name, checks, error, age) => {
    const count = (verdict) => checks.filter((check) => check.verdict === verdict).length;
    const summary = checks.length
      ? `${plural(count("pass"), "check passes", "checks pass")}, ${plural(count("fail"), "fails", "fail")}, ${count("unknown")} not known`
      : "no checks known";
    const row = (check) => h("tr", { class: check.verdict }, h("th", { scope: "row" }, check.id), h("td", {}, h("span", { class: "verdict" }, VERDICT[check.verdict] || check.verdict)), h("td", { class: "break" }, check.about), h("td", { class: "break" }, check.why));
    const head = ["Check", "Verdict", "What for", "Seen"].map((words) => h("th", { scope: "col" }, words));
    return h("details", { "data-key": `doctor-${name}` },
      h("summary", { "data-key": `doctor-summary-${name}` }, h("strong", {}, name), ` ${summary}`, error && ` (${error})`, age > 15 && ` (told ${span(age)} ago)`),
      checks.length > 0 && h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Checks of ${name}` }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, checks.map(row)))));
  };
  return [
    ...answer.nodes.map((node) => group(node.node, node.checks || [], node.error, node.age)),
    answer.compared.length > 0 && group("All nodes compared", answer.compared, "", 0),
  ];
}

// Puts together what sparkd says and where it is shown.

import { Hour, band, bytes, chart, coarse, rate } from "./charts.js";
import { Control } from "./control.js";
import { $, clock, h, plural, put, span, text } from "./dom.js";
import { Feed, Refused, ask, token } from "./feed.js";
import * as parts from "./parts.js";
import { legend, picture, table } from "./ring.js";

const GLYPH = { ready: "●", degraded: "▲", held: "■", gated: "◇", starting: "◐", draining: "◒", stopping: "◑", down: "○", maintenance: "‖" };
const EVENTS = 200;
const seen = { ring: null, plan: null, doctor: null, events: [], incidents: null };
const hour = new Hour();
const control = new Control();
const narrow = window.matchMedia("(max-width: 600px)");
const soon = new Map();

function showRing() {
  const { ring, plan } = seen;
  if (!ring) return;
  const serves = `${ring.phase[0].toUpperCase()}${ring.phase.slice(1)}`;
  document.title = `${ring.phase} · ${ring.cluster} · sparkd`;
  document.body.dataset.phase = ring.phase;
  text($("cluster"), ring.cluster);
  put($("phase"), ring.phase, () => [h("span", { "aria-hidden": "true" }, GLYPH[ring.phase] || "?"), ` ${serves}`]);
  text($("sentence"), ring.summary);
  text($("facts"), `Epoch ${ring.epoch}, wanted ${ring.want} by ${ring.by}${ring.reason && !ring.summary.includes(ring.reason) ? `: ${ring.reason}` : ""}`);
  if (ring.drain) {
    const { running, left } = ring.drain;
    text($("facts"), `${$("facts").textContent}. It drains: ${running === null ? "requests" : plural(running, "request")} to end, ${span(left)} left at most`);
  }
  const waits = ring.waits.length > 1 || (ring.waits.length && !ring.summary.includes(ring.waits[0])) ? ring.waits : [];
  $("waits").hidden = !waits.length;
  put($("waits"), waits, () => waits.map((words) => h("li", {}, words)));
  put($("numbers"), [ring.ranks, ring.budget, ring.work], () => parts.numbers(ring));
  put($("ranks"), [ring.ranks, ring.memory, ring.peers.map((peer) => [peer.node, peer.error, peer.age === null, peer.error && peer.age])], () => parts.ranks(ring));
  if (plan) {
    const quiet = ring.peers.map((peer) => [peer.node, Boolean(peer.error), peer.age === null]);
    put($("ring"), [plan, ring.fabric, ring.rails, ring.ranks, ring.memory, quiet, ring.want, narrow.matches], () => picture(ring, plan, narrow.matches));
    put($("cables"), [plan, ring.fabric, ring.rails, ring.want], () => table(ring, plan));
  }
  showFindings();
  control.show(ring);
  text($("about"), `sparkd ${ring.version} on ${ring.node}; conductor ${ring.conductor}; engine ${ring.engine.name}${ring.engine.profile ? `, ${ring.engine.profile}` : ""}`);
}

function showFindings() {
  const told = seen.doctor ? [...seen.doctor.findings, ...seen.doctor.nodes.flatMap((node) => node.findings)] : [];
  const found = parts.unique([...seen.ring.findings, ...told]);
  $("problems").hidden = !found.length;
  put($("findings"), found, () => found.map(parts.finding));
}

function showHour() {
  const { samples, whole } = hour;
  if (!whole || !samples.length) return;
  const from = samples.length > 1 ? `, since ${clock(samples[0].at)}` : "";
  text($("hour-note"), `As ${whole.node} saw it${from}: memory and rails are those of ${whole.node} alone. Each node's own page has its own. Tokens are the whole ring's.`);
  const floor = seen.ring?.memory?.find((memory) => memory.node === whole.node)?.floor_kib * 1024;
  put($("charts"), [samples.length, samples.at(-1), narrow.matches, floor], () => [
    band(samples, narrow.matches),
    chart({ key: "tokens", title: "Tokens per second", samples, narrow: narrow.matches, show: (value) => value.toFixed(value < 100 ? 1 : 0), tick: (value) => String(+value.toPrecision(3)), lines: [{ name: "tokens", values: samples.map((sample) => sample.tokens) }] }),
    chart({ key: "memory", title: `Memory left on ${whole.node}`, samples, narrow: narrow.matches, show: bytes, tick: coarse, base: 2, top: whole.memory_total || undefined, marked: { value: floor, name: "floor" }, lines: [{ name: "left", values: samples.map((sample) => sample.memory) }] }),
    chart({ key: "rails", title: `Traffic of ${whole.node}'s rails`, samples, narrow: narrow.matches, show: rate, lines: whole.rails.map((rail, place) => ({ name: rail.device, values: samples.map((sample) => sample.rails[place]) })) }),
  ]);
}

function showEvents() {
  const list = seen.events.slice(-EVENTS).reverse();
  put($("events"), [list.length, list[0]?.id, list.at(-1)?.id], () => parts.events(list));
}

// Ask for it now, and again after `seconds`, while somebody looks.
function every(seconds, task) {
  const round = async () => {
    clearTimeout(soon.get(task));
    try {
      if (!document.hidden) await task();
    } catch (error) {
      if (!(error instanceof Refused || error instanceof TypeError || error instanceof DOMException)) console.error(error);
    }
    soon.set(task, setTimeout(round, seconds * 1000));
  };
  document.addEventListener("visibilitychange", () => document.hidden || round());
  return round;
}

async function getHistory() {
  const history = await ask(`v1/history?after=${hour.last}`, { fresh: true });
  if (hour.add(history)) hour.add(await ask("v1/history?after=0", { fresh: true }));
  showHour();
}

async function getPlan() {
  seen.plan = (await ask("v1/plan")) || seen.plan;
  showRing();
}

async function getDoctor() {
  const answer = await ask("v1/doctor");
  if (!answer) return;
  seen.doctor = answer;
  put($("doctor"), answer.nodes.map(({ age, ...node }) => [node, age > 15 && Math.round(age / 10)]).concat(answer.compared), () => parts.doctor(answer));
  if (seen.ring) showFindings();
}

async function getIncidents() {
  const answer = await ask("v1/incidents");
  if (!answer) return;
  seen.incidents = answer;
  put($("incidents"), answer, () => parts.incidents(answer, openIncident));
}

async function openIncident(epoch, place) {
  // What was withheld is asked for again once there is a token.
  const signed = String(Boolean(token.get()));
  if (place.childElementCount && place.dataset.signed === signed) return;
  place.dataset.signed = signed;
  place.replaceChildren(h("p", { class: "muted" }, "Asking every node"));
  try {
    place.replaceChildren(...parts.evidence(await ask(`v1/incidents/${epoch}`, { fresh: true, seconds: 30 })));
  } catch (error) {
    place.replaceChildren(h("p", { class: "fault" }, error instanceof Refused ? error.message : "sparkd did not answer."));
  }
}

async function getEvents() {
  const answer = await ask(`v1/events?limit=${EVENTS}`, { fresh: true });
  seen.events = answer.events;
  showEvents();
}

const plan = every(60, getPlan);
const doctor = every(20, getDoctor);
const incidents = every(60, getIncidents);
const history = every(10, getHistory);

const feed = new Feed({
  ring(ring) {
    const before = seen.ring;
    seen.ring = ring;
    showRing();
    if (!before || before.phase !== ring.phase || before.epoch !== ring.epoch) {
      plan();
      doctor();
      incidents();
    }
  },
  event(event) {
    if (seen.events.some((known) => known.id === event.id)) return;
    seen.events.push(event);
    seen.events = seen.events.slice(-EVENTS);
    showEvents();
  },
  lost() {
    hour.clear();
    getEvents().catch(() => {});
    history();
  },
  state(state, heard, why) {
    const since = heard ? `since ${clock(heard / 1000)}` : "yet";
    const node = seen.ring ? ` on ${seen.ring.node}` : "";
    const words = {
      live: "live",
      quiet: "silent",
      gone: "not connected",
      refused: "token needed",
    };
    $("link").dataset.state = state;
    text($("link"), words[state]);
    const old = heard ? ` What is shown is ${span((Date.now() - heard) / 1000)} old.` : "";
    const told = {
      quiet: `Nothing has been heard of sparkd${node} ${since}.${old} Trying again.`,
      gone: `sparkd${node} does not answer${why ? ` (${why})` : ""}, and has not ${since}.${old} A ring that serves goes on without it. On the node: systemctl status sparkd. Trying again.`,
      refused: `sparkd wants a token before it tells anything: ${why}`,
    }[state];
    document.body.classList.toggle("old", state !== "live" && Boolean(heard));
    $("stale").hidden = !told;
    text($("stale"), told || "");
    if (state === "refused" && !$("sign-in")) {
      const field = h("input", { type: "password", autocomplete: "off", "aria-label": "Token" });
      $("stale").after(h("form", { id: "sign-in", class: "sign-in", on: { submit: (event) => { event.preventDefault(); token.set(field.value.trim()); $("sign-in").remove(); feed.hurry?.(); } } }, field, h("button", { class: "primary" }, "Use this token")));
    } else if (state === "live") {
      $("sign-in")?.remove();
      if (this.before && this.before !== "live") for (const again of [history, doctor, incidents, plan]) again();
    }
    this.before = state;
  },
});

put($("legend"), 1, legend);
narrow.addEventListener("change", () => {
  showRing();
  showHour();
});
for (const start of [plan, doctor, incidents, history]) start();
getEvents().catch(() => {});
feed.run();

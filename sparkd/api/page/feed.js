// What sparkd says, as it says it: a stream of server-sent events, read with fetch so that a token can go with it and
// never into an address; and a poll where there is no stream.

const QUIET = 40; // seconds; the stream has a comment every 15
const RETRY = [1, 2, 4, 8];
const TOKEN = "sparkd-token";

export const token = {
  get: () => sessionStorage.getItem(TOKEN) || "",
  set: (value) => (value ? sessionStorage.setItem(TOKEN, value) : sessionStorage.removeItem(TOKEN)),
};

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || `sparkd answered with status ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

function headers(more) {
  const given = { Accept: "application/json", ...more };
  if (token.get()) given.Authorization = `Bearer ${token.get()}`;
  return given;
}

// JSON of a resource, null if it is as before. Raises Refused, or TypeError if nobody answers.
const tags = new Map();
export async function ask(path, { method = "GET", seconds = 10, fresh = false } = {}) {
  const known = method === "GET" && !fresh && tags.get(path);
  const answer = await fetch(path, {
    method,
    headers: headers(known ? { "If-None-Match": known } : {}),
    cache: "no-store",
    signal: AbortSignal.timeout(seconds * 1000),
  });
  if (answer.status === 304) return null;
  const kind = answer.headers.get("Content-Type") || "";
  const body = /json/.test(kind) ? await answer.json() : {};
  if (!answer.ok) throw new Refused(answer.status, body);
  if (method === "GET" && answer.headers.get("ETag")) tags.set(path, answer.headers.get("ETag"));
  return body;
}

// The parts of a text/event-stream (WHATWG HTML, 9.2): calls `told` with each event's type, data and id.
export function reader(told) {
  let rest = "";
  let event = { type: "", data: [], id: "" };
  return (chunk) => {
    const lines = (rest + chunk).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (event.data.length) told(event.type || "message", event.data.join("\n"), event.id);
        event = { type: "", data: [], id: "" };
        continue;
      }
      const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line);
      if (name === "event") event.type = value;
      else if (name === "data") event.data.push(value);
      else if (name === "id") event.id = value;
    }
  };
}

// Follows sparkd until the page goes. `on.ring(ring)`, `on.event(event)`, `on.lost()`: events are gone, ask for all;
// `on.state(state, since, why)`: live, quiet or gone.
export class Feed {
  constructor(on) {
    this.on = on;
    this.heard = 0;
    this.state = "";
    this.why = "";
    this.last = "";
    this.failures = 0;
    setInterval(() => this.look(), 1000);
    document.addEventListener("visibilitychange", () => document.hidden || this.hurry?.());
    window.addEventListener("online", () => this.hurry?.());
  }

  alive() {
    this.heard = Date.now();
    this.failures = 0;
    this.say("live");
  }

  say(state, why = "") {
    if (state === this.state && why === this.why && state === "live") return;
    this.state = state;
    this.why = why;
    this.on.state(state, this.heard, why);
  }

  look() {
    if (this.state === "live" && Date.now() - this.heard > QUIET * 1000) {
      this.aborter?.abort();
      this.say("quiet");
    } else if (this.state !== "live" && this.state !== "") this.on.state(this.state, this.heard, this.why);
  }

  async run() {
    for (;;) {
      try {
        await this.stream();
        this.say("gone", "it has closed the connection");
      } catch (error) {
        await this.poll(error);
      }
      const pause = RETRY[Math.min(this.failures, RETRY.length - 1)];
      this.failures += 1;
      await new Promise((resolve) => {
        this.hurry = resolve;
        setTimeout(resolve, pause * 1000);
      });
    }
  }

  // Without a stream, as when too many follow: what the ring is, each time.
  async poll(error) {
    try {
      const ring = await ask("v1/ring");
      if (ring) this.on.ring(ring);
      this.alive();
      this.failures = 1;
    } catch (second) {
      const refused = second instanceof Refused && (second.status === 401 || second.status === 403);
      this.say(refused ? "refused" : "gone", second instanceof Refused ? second.message : error.problem?.detail || "");
    }
  }

  async stream() {
    this.aborter = new AbortController();
    const more = this.last ? { "Last-Event-ID": this.last } : {};
    const answer = await fetch("v1/events", {
      headers: headers({ Accept: "text/event-stream", ...more }),
      cache: "no-store",
      signal: this.aborter.signal,
    });
    if (!answer.ok || !/event-stream/.test(answer.headers.get("Content-Type") || "")) {
      const problem = await answer.json().catch(() => ({}));
      throw new Refused(answer.status, problem);
    }
    this.alive();
    const read = reader((type, data, id) => this.told(type, JSON.parse(data), id));
    const decoder = new TextDecoder();
    const body = answer.body.getReader();
    for (;;) {
      const { done, value } = await body.read();
      if (done) return;
      this.alive();
      read(decoder.decode(value, { stream: true }));
    }
  }

  told(type, data, id) {
    if (id) this.last = id;
    if (type === "ring") this.on.ring(data);
    else if (type === "event") this.on.event(data);
    else if (type === "lost") this.on.lost();
  }
}

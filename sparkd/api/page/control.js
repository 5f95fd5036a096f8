// Start, stop, hold, resume and clear: first what would come of it, then the change, for the epoch that was looked at.

import { $, h, text } from "./dom.js";
import { Refused, ask, token } from "./feed.js";
import { finding } from "./parts.js";

const CHANGES = {
  start: { word: "Start", about: "The ranks are started in order on all nodes, once every condition holds." },
  stop: { word: "Stop", about: "All ranks end, and requests that still run are lost. The ring stays down until it is started." },
  hold: { word: "Hold", about: "Maintenance: sparkd starts, stops and repairs nothing on any node until somebody resumes. A ring that serves goes on." },
  resume: { word: "Resume", about: "The maintenance ends: sparkd sees to what is wanted again." },
  clear: { word: "Clear", about: "A held ring may start again. It stays down until it is started." },
};

// Which changes make sense now; what the daemon refuses, it says itself.
export function possible(ring) {
  const paused = Boolean(ring.maintenance);
  return {
    // A ring that drains is wanted down and still serves: a stop ends that at once, a start takes it back.
    start: !paused && ring.want === "down" && ring.phase !== "held",
    stop: !paused && (ring.want === "up" || Boolean(ring.drain)),
    clear: ring.phase === "held",
    hold: !paused,
    resume: paused,
  };
}

export class Control {
  constructor() {
    this.ring = null;
    this.change = "";
    this.turn = 0;
    $("ask-cancel").addEventListener("click", () => $("ask").close());
    $("ask-forget").addEventListener("click", () => {
      token.set("");
      $("ask").close();
    });
    $("ask-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.go();
    });
    // A token that was typed in is kept by nobody but sessionStorage.
    $("ask").addEventListener("close", () => {
      $("token").value = "";
      this.turn += 1;
    });
  }

  show(ring) {
    this.ring = ring;
    const allowed = possible(ring);
    const box = $("controls");
    if (!box.children.length) {
      box.append(...Object.entries(CHANGES).map(([name, { word }]) =>
        h("button", { type: "button", id: `do-${name}`, on: { click: () => this.open(name) } }, `${word}…`)));
    }
    for (const name of Object.keys(CHANGES)) {
      const button = $(`do-${name}`);
      const hide = !allowed[name];
      if (hide && document.activeElement === button) $("main").focus();
      button.hidden = hide;
      button.className = name === "start" || name === "clear" || name === "resume" ? "primary" : "";
    }
  }

  open(name) {
    this.change = name;
    text($("ask-title"), `${CHANGES[name].word} the ring`);
    const back = name === "start" && this.ring.drain;
    text($("ask-about"), back ? "The order to drain is taken back: the ring goes on serving." : CHANGES[name].about);
    $("ask-reason").hidden = name !== "hold";
    $("reason").value = "";
    $("ask-drain").hidden = name !== "stop";
    $("drain").value = "0";
    $("ask-answer").replaceChildren();
    this.sign(!token.get());
    $("ask").showModal();
    if (token.get()) this.look();
    else $("token").focus();
  }

  // Ask for a token, or for the change.
  sign(needed) {
    $("ask-token").hidden = $("token-help").hidden = !needed;
    $("ask-forget").hidden = needed;
    $("token").required = needed;
    text($("ask-go"), needed ? "See what it would do" : `${CHANGES[this.change].word} the ring`);
    $("ask-go").disabled = false;
    this.signing = needed;
  }

  path(more) {
    const query = new URLSearchParams(more);
    if (this.change === "hold" && $("reason").value) query.set("reason", $("reason").value);
    if (this.change === "stop" && Number($("drain").value) > 0) query.set("drain", $("drain").value);
    return `v1/ring/${this.change}?${query}`;
  }

  async look() {
    const turn = this.turn;
    $("ask-go").disabled = true;
    this.answer(h("p", { class: "muted" }, "Asking what would come of it"));
    try {
      const trial = await ask(this.path({ dry_run: "true" }), { method: "POST", seconds: 20 });
      if (turn !== this.turn) return;
      this.epoch = trial.epoch;
      const words = trial.accepted ? (trial.changes ? "It would be carried out: " : "Nothing would change: ") : "It would be refused: ";
      this.answer(h("p", { class: trial.accepted ? "good" : "fault" }, h("b", {}, words), trial.summary), this.list(trial.findings));
      $("ask-go").disabled = !trial.accepted;
    } catch (error) {
      if (turn === this.turn) this.refused(error);
    }
  }

  async go() {
    if (this.signing) {
      token.set($("token").value.trim());
      $("token").value = "";
      this.sign(false);
      await this.look();
      return;
    }
    const turn = this.turn;
    $("ask-go").disabled = true;
    try {
      const more = this.epoch === undefined ? {} : { expect_epoch: String(this.epoch) };
      const made = await ask(this.path(more), { method: "POST", seconds: 20 });
      if (turn !== this.turn) return;
      this.answer(h("p", { class: "good" }, `Done: ${made.summary}`));
      $("ask").close();
    } catch (error) {
      if (turn === this.turn) this.refused(error);
    }
  }

  refused(error) {
    if (!(error instanceof Refused)) {
      this.answer(h("p", { class: "fault" }, "sparkd did not answer. Whether the change was made is not known: look at the ring before you try again."));
      $("ask-go").disabled = false;
      return;
    }
    const { problem } = error;
    if (error.status === 401 || error.status === 403) {
      // One that may only look is good for that, until there is another.
      if (error.status === 401) token.set("");
      this.sign(true);
    }
    this.answer(
      h("p", { class: "fault" }, h("b", {}, "Refused: "), error.message),
      problem.hint && h("p", { class: "fix" }, h("b", {}, "What to do: "), problem.hint),
      this.list(problem.findings));
  }

  list(findings) {
    return findings?.length ? h("ul", { class: "findings" }, findings.map(finding)) : null;
  }

  answer(...parts) {
    $("ask-answer").replaceChildren(...parts.filter(Boolean));
  }
}

// Runs that wait to be learnt from: how many, learning from them now, and what came of it.
import { get, post } from "./api.js";
import { el, replace, say } from "./dom.js";
import { capital, counted } from "./format.js";
import { attempt, badge, button } from "./parts.js";
import { t } from "./texts.js";

const ASK_AGAIN = 1500;
const OUTCOMES = {
  kept: [t("Kept"), "good"],
  quarantined: [t("In quarantine"), "warn"],
  "set aside": [t("Set aside"), ""],
  nothing: [t("Nothing kept"), ""],
  skipped: [t("Skipped"), ""],
  queued: [t("Failed; it waits"), "bad"],
};

export class LearningPanel {
  /** `learnt` is called when something new may stand in the bank. */
  constructor(signal, learnt) {
    Object.assign(this, { signal, learnt, came: null });
    this.said = el("p", { role: "status" });
    this.failed = el("div");
    this.press = button(t("Learn from them now"), () => this.change(this.press, "/api/learning"), {
      kind: "small primary", drawn: "memory",
    });
    this.stop = button(t("Stop"), () => this.change(this.stop, "/api/learning/stop"), {
      kind: "small", drawn: "stop",
    });
    this.lessons = el("ul", { class: "lessons" });
    this.past = el(
      "details",
      { class: "fold" },
      el("summary", {}, t("What the latest runs taught")),
      this.lessons,
    );
    const acts = el("div", { class: "row" }, this.press, this.stop);
    this.element = el(
      "section",
      { class: "card stack tight learning", "aria-label": t("Learning"), hidden: true },
      el("div", { class: "row apart" }, this.said, acts),
      this.failed,
      this.past,
    );
    this.look();
  }

  async change(control, address) {
    const state = await attempt(this.failed, control, () => post(address));
    if (!state) return;
    // Whoever pressed it is left with what it became.
    this.draw(state);
    (state.now ? this.stop : this.press).focus();
    if (!this.looking) this.look();
  }

  /** Look at it as long as something is learnt from. */
  async look() {
    this.looking = true;
    try {
      for (;;) {
        const state = await get("/api/learning", { signal: this.signal });
        this.draw(state);
        if (!state.now) break;
        await new Promise((done) => setTimeout(done, ASK_AGAIN));
        if (this.signal.aborted) return;
      }
    } catch (error) {
      // The bank below says what is wrong with the server.
      if (error.name !== "AbortError") this.element.hidden = true;
    } finally {
      this.looking = false;
    }
  }

  draw({ at_once, waiting, others, now, lessons }) {
    this.element.hidden = !(waiting || others || now || lessons.length);
    const said = now ? doing(now) : waits(waiting, others, at_once);
    if (this.said.textContent !== said) replace(this.said, said);
    this.press.hidden = Boolean(now) || !waiting;
    this.stop.hidden = !now;
    this.past.hidden = !lessons.length;
    const latest = JSON.stringify(lessons);
    if (latest === this.came) return;
    if (this.came !== null) {
      this.learnt();
      say(lessons[0]?.said ?? "");
    }
    this.came = latest;
    replace(this.lessons, lessons.map(lesson));
  }
}

function doing({ question, doing: step, left }) {
  const waits = counted(left, "more run waits", "more runs wait");
  const more = left ? t(" {0} for its turn.", waits) : "";
  return `${capital(step)}: “${question}”.${more}`;
}

function waits(waiting, others, atOnce) {
  const own = waiting
    ? t("{0} to be learnt from.", counted(waiting, "run waits", "runs wait"))
    : t(
      "Nothing waits to be learnt from.{0}",
      atOnce ? t(" Runs are learnt from as they end.") : "",
    );
  const rest = others
    ? t(" {0} of another model: rubricem learn.", counted(others, "run"))
    : "";
  return own + rest;
}

function lesson({ run, question, outcome, said, reflection }) {
  const [label, kind] = OUTCOMES[outcome] ?? [capital(outcome), ""];
  const address = `#/run/${encodeURIComponent(run)}`;
  const kept = reflection && el(
    "a",
    { href: `#/memory/${encodeURIComponent(reflection)}` },
    t("what it taught"),
  );
  return el(
    "li",
    { class: "stack tight" },
    el(
      "div",
      { class: "row" },
      badge(label, kind),
      el("a", { href: address, dir: "auto" }, question || run),
      kept,
    ),
    el("p", { class: "small soft", dir: "auto" }, capital(said)),
  );
}

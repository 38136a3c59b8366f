// The head of a run: its question, its state, what it took so far, and the stage it has reached.
import { el, replace } from "./dom.js";
import { capital, duration, money, newTokens, number, when } from "./format.js";
import { icon } from "./icons.js";
import { badge, button, stateOf } from "./parts.js";
import { t } from "./texts.js";

const STAGES = ["plan", "research", "review", "answer"];
const WENT_THROUGH = ["finished", "no_evidence"];
const COUNTS = ["time", "left", "searches", "tokens", "cost"];
const LONG = 120;
const RESUMED = ["partial", "failed", "unfinished"];
const SETTLED = ["not_found", "uncertain", "uncited", "unsupported"];

export class RunHead {
  /** `nested`: a part of another run's page, whose thread that names. */
  constructor(run, { stop, goOn, deepen }, nested) {
    this.badge = el("span");
    this.counts = new Map(COUNTS.map((name) => [name, el("dd", { data: { count: name } })]));
    const title = t("End now, with a report of what there is");
    this.stop = button(t("Stop"), stop, { kind: "small", drawn: "stop", title });
    this.resume = button(t("Go on"), goOn, { kind: "small primary" });
    this.deepen = button(t("Deepen"), deepen, { kind: "small", drawn: "branch", hidden: true });
    this.entered = new Set();
    this.steps = STAGES.map(step);
    // Of a run that had finished all are done: they say nothing, and take room from the report.
    const stages = {
      class: "stages",
      "aria-label": t("Stages"),
      hidden: WENT_THROUGH.includes(run.status),
    };
    this.kicker = el("p", { class: "kicker" });
    this.place(run, nested);
    const asked = {
      tabindex: "-1", dir: "auto", class: run.question.length > LONG ? "long" : null,
    };
    this.element = el(
      "header",
      { class: "run-head" },
      this.kicker,
      el(nested ? "h2" : "h1", asked, run.question),
      el(
        "div",
        { class: "run-bar" },
        this.badge,
        el("dl", { class: "run-counts" }, [...this.counts].map(count)),
        el("div", { class: "row" }, this.stop, this.deepen, this.resume),
      ),
      el("ol", stages, this.steps),
    );
    this.tell(run.usage ?? {});
  }

  /** Where the run belongs, when it was asked, and of what. */
  place(run, nested = false) {
    let [to, label] = nested ? [`#/run/${encodeURIComponent(run.run)}`, t("By itself")]
      : [`#/conversations/${encodeURIComponent(run.thread)}`, t("Conversation")];
    if (run.part_of) [to, label] = [leadOf(run), t("Part of a larger research")];
    const facts = [when(run.started_at), run.model].filter(Boolean).join(" · ");
    const linked = run.thread || run.part_of;
    replace(this.kicker, linked && [el("a", { href: to }, label), " · "], facts);
  }

  /** The run's state as it is now. */
  state(run) {
    const live = run.state !== "ended";
    const [label, kind] = stateOf(run);
    replace(this.badge, badge(label, kind));
    this.stop.hidden = !live;
    const left = RESUMED.includes(run.status) && !SETTLED.includes(run.ended_by);
    this.resume.hidden = live || !left || Boolean(run.part_of);
    if (live) return;
    this.finished(run);
    if (run.status === "failed") replace(this.resume, t("Try again"));
    this.time(run.seconds);
    this.tell(run.usage ?? {});
  }

  time(seconds, left = "") {
    replace(this.counts.get("time"), duration(seconds));
    replace(this.counts.get("left"), left);
    this.counts.get("left").parentElement.hidden = !left;
  }

  /** What was spent; money only where a price is known. */
  tell({ cost, tool_calls = 0, ...usage }) {
    replace(this.counts.get("searches"), number(tool_calls));
    replace(this.counts.get("tokens"), number(newTokens(usage)));
    replace(this.counts.get("cost"), money(cost));
    this.counts.get("cost").parentElement.hidden = !cost;
  }

  reached(stage) {
    const reached = STAGES.indexOf(stage);
    this.entered.add(stage);
    this.steps.forEach((step, place) => {
      const done = place < reached && this.entered.has(STAGES[place]);
      step.className = done ? "done" : place === reached ? "now" : "";
      if (place === reached) step.setAttribute("aria-current", "step");
      else step.removeAttribute("aria-current");
    });
  }

  /** Only what was done has a mark: nothing from the stage on in which a run was cut. */
  finished({ status, cut_in: cut }) {
    const from = cut ? STAGES.indexOf(cut) : STAGES.length;
    this.steps.forEach((step, place) => {
      const written = step.className === "now" && status !== "failed";
      step.className = place < from && (written || step.className === "done") ? "done" : "";
      step.removeAttribute("aria-current");
    });
  }
}

const leadOf = ({ part_of: lead }) => `#/run/${encodeURIComponent(lead)}/steps`;

const count = ([name, value]) => el("div", {}, el("dt", {}, capital(name)), value);

function step(stage) {
  return el("li", {}, el("span", { class: "stage-mark" }, icon("check")), capital(stage));
}

// One run: watched while it works, its plan approved, its report read; the same after a reload.
import { follow, get, path, post } from "./api.js";
import { AskPanel } from "./approval.js";
import { el, replace, say } from "./dom.js";
import { capital, duration, money, number, when } from "./format.js";
import { Feed } from "./feed.js";
import { icon } from "./icons.js";
import { attempt, badge, button, failure, notice, stateOf, waiting } from "./parts.js";
import { drawReport, loadReport } from "./report.js";
import { RubricPanel } from "./rubric.js";

const STAGES = ["plan", "research", "review", "answer"];

export function show([name, tab], signal) {
  const place = el("div", { class: "view wide run" }, el("h1", { tabindex: "-1", class: "unseen" }, "Run"), waiting());
  const path_ = path("runs", name);
  get(path_, { signal }).then(
    (run) => !signal.aborted && new RunView(place, run, tab, signal),
    (error) => signal.aborted || replace(place, el("h1", { tabindex: "-1" }, "This run cannot be shown"), failure(error)),
  );
  return place;
}

class RunView {
  constructor(place, run, tab, signal) {
    Object.assign(this, { run, tab, signal });
    this.began = performance.now() - 1000 * (run.seconds ?? 0);
    this.feed = new Feed();
    this.rubric = new RubricPanel();
    this.asked = new AskPanel(run.run);
    this.lost = el("div", { class: "lost" });
    this.failed = el("div");
    this.limits = el("p", { class: "small soft limits-said" }, (run.limits ?? []).join(" · "));
    this.report = el("div", { class: "report-panel stack" });
    this.draw(place);
    this.tell(run.usage ?? {});
    this.state(run);
    this.tick();
    const heard = { hear: (name, data) => this.hear(name, data), over: () => this.over(), connected: (up) => this.connected(up) };
    follow(run.run, heard, signal);
  }

  draw(place) {
    this.badge = el("span");
    this.counts = Object.fromEntries(["time", "searches", "tokens", "cost"].map((name) => [name, el("dd", { data: { count: name } })]));
    this.stop = button("Stop", (event) => this.end(event), { kind: "small", drawn: "stop", title: "End now, with a report of what there is" });
    this.resume = button("Go on", (event) => this.goOn(event), { kind: "small primary", hidden: true });
    this.steps = STAGES.map((stage) => el("li", { data: { stage } }, el("span", { class: "stage-mark" }, icon("check")), capital(stage)));
    const thread = this.run.thread && el("a", { href: `#/threads/${encodeURIComponent(this.run.thread)}` }, "Thread");
    const kicker = el("p", { class: "kicker" }, thread, thread ? " · " : "", when(this.run.started_at), this.run.model ? ` · ${this.run.model}` : "");
    const counts = el("dl", { class: "run-counts" }, Object.entries(this.counts).map(([name, dd]) => el("div", {}, el("dt", {}, capital(name)), dd)));
    const bar = el("div", { class: "run-bar" }, this.badge, counts, el("div", { class: "row" }, this.stop, this.resume));
    const head = el("header", { class: "run-head" }, kicker, el("h1", { tabindex: "-1", dir: "auto" }, this.run.question), bar, el("ol", { class: "stages", "aria-label": "Stages" }, this.steps));
    this.tabs = el("nav", { class: "tabs", "aria-label": "Parts of this run", hidden: true });
    const main = el("div", { class: "run-main stack" }, this.failed, this.lost, this.feed.element, this.report);
    replace(place, head, this.tabs, el("div", { class: "run-grid" }, el("aside", { class: "run-aside stack", "aria-label": "Rubric and limits" }, this.rubric.element, this.limits), main));
    document.title = `${this.run.question} · rubricem`;
  }

  hear(name, data) {
    if (data.t) this.began = Math.min(this.began, performance.now() - 1000 * data.t);
    this.feed.hear(name, data);
    if (name === "ask" || name === "answered") this.asked[`on_${name}`](data);
    this[`on_${name}`]?.(data);
  }

  on_stage({ stage }) {
    const reached = STAGES.indexOf(stage);
    this.steps.forEach((step, place) => {
      step.className = place < reached ? "done" : place === reached ? "now" : "";
      if (place === reached) step.setAttribute("aria-current", "step");
      else step.removeAttribute("aria-current");
    });
    if (stage !== this.stage) say(`Stage: ${stage}`);
    this.stage = stage;
    if (this.run.state !== "ended") this.state({ ...this.run, state: "running" });
  }

  on_rubric({ items }) {
    this.rubric.show(items);
  }

  on_budget({ limits }) {
    replace(this.limits, `May take ${limits.join(", ")}.`);
  }

  on_usage(usage) {
    this.tell(usage);
  }

  /** What waits for a person stands where the reading has got to. */
  on_ask() {
    this.feed.add(this.asked.element);
    this.asked.element.scrollIntoView({ block: "nearest" });
    if (this.run.state !== "ended") this.state({ ...this.run, state: "asking" });
  }

  on_answered() {
    if (this.run.state === "asking") this.state({ ...this.run, state: "running" });
  }

  on_finished({ status, reason }) {
    this.finished = { status, reason };
    this.steps.forEach((step) => {
      if (step.className === "now" && status === "finished") step.className = "done";
      step.removeAttribute("aria-current");
    });
  }

  /** The run is taken up again: what stands so far is told anew. */
  on_restart() {
    this.feed.clear();
    this.asked.over();
    this.rubric.show([]);
  }

  /** The stream came to its end: the run is what the server says it is. */
  async over() {
    if (this.signal.aborted) return;
    this.feed.settle();
    this.asked.over();
    const was = this.run.state;
    try {
      this.state(await get(path("runs", this.run.run), { signal: this.signal }));
    } catch (error) {
      if (error.name !== "AbortError") replace(this.failed, failure(error));
      return;
    }
    if (was !== "ended") {
      say(`The run ended: ${stateOf(this.run)[0]}.`);
      dispatchEvent(new Event("runs-changed"));
    }
    await this.showEnd();
  }

  async showEnd() {
    const base = `#/run/${encodeURIComponent(this.run.run)}`;
    const at = this.tab === "steps" ? "steps" : "report";
    const links = [["report", base, "Report"], ["steps", `${base}/steps`, "How it was found"], ["", `#/judge/${encodeURIComponent(this.run.run)}`, "Scores"]];
    replace(this.tabs, links.map(([name, href, label]) => el("a", { href, "aria-current": name === at ? "page" : null }, label)));
    this.tabs.hidden = false;
    this.feed.element.hidden = at !== "steps";
    if (at === "report") replace(this.report, waiting("Loading the report …"));
    try {
      const report = await loadReport(this.run.run, this.signal);
      if (report.rubric.length) this.rubric.show(report.rubric);
      if (!this.stage) this.feed.retell(report.stages);
      if (at === "report") replace(this.report, drawReport(this.run, report));
    } catch (error) {
      if (error.name !== "AbortError") replace(this.report, failure(error));
    }
  }

  state(run) {
    this.run = { ...this.run, ...run };
    const [label, kind] = stateOf(this.run);
    const live = this.run.state !== "ended";
    replace(this.badge, badge(label, kind));
    this.stop.hidden = !live;
    this.resume.hidden = live || !["partial", "failed", "unfinished"].includes(this.run.status);
    if (!live) {
      replace(this.counts.time, duration(this.run.seconds));
      this.tell({ ...this.run.usage, tool_calls: this.run.tool_calls ?? this.run.usage?.tool_calls, cost: this.run.cost ?? this.run.usage?.cost });
    }
  }

  tell({ prompt_tokens = 0, completion_tokens = 0, cost, tool_calls }) {
    replace(this.counts.searches, number(tool_calls ?? 0));
    replace(this.counts.tokens, number(prompt_tokens + completion_tokens));
    replace(this.counts.cost, money(cost));
  }

  tick() {
    const show = () => {
      if (this.run.state !== "ended") replace(this.counts.time, duration((performance.now() - this.began) / 1000));
    };
    show();
    const timer = setInterval(show, 1000);
    this.signal.addEventListener("abort", () => clearInterval(timer));
  }

  async end({ currentTarget }) {
    const stopped = await attempt(this.failed, currentTarget, async () => (await post(path("runs", this.run.run, "stop"))) ?? true);
    if (stopped) {
      currentTarget.disabled = true;
      say("Stopping; a report of what there is will follow.");
    }
  }

  async goOn({ currentTarget }) {
    const resumed = await attempt(this.failed, currentTarget, async () => (await post(path("runs", this.run.run, "resume"))) ?? true);
    if (resumed) dispatchEvent(new HashChangeEvent("hashchange"));
  }

  connected(up) {
    if (this.run.state === "ended") return;
    replace(this.lost, up ? null : notice("The connection was lost; the run goes on.", "This page takes it up again by itself."));
  }
}

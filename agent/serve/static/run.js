// One run: watched while it works, its plan approved, its report read; the same after a reload.
import { follow, get, path, post } from "./api.js";
import { AskPanel } from "./approval.js";
import { el, replace, say } from "./dom.js";
import { Feed } from "./feed.js";
import { notify, notifying } from "./notify.js";
import { attempt, failure, notice, stateOf, waiting } from "./parts.js";
import { drawReport } from "./report.js";
import { largerBudget, metBudget } from "./resume.js";
import { RubricPanel } from "./rubric.js";
import { RunHead } from "./run_head.js";
import { earlier } from "./threads.js";

export function show([name, tab], signal) {
  const unseen = el("h1", { tabindex: "-1", class: "unseen" }, "Run");
  const place = el("div", { class: "view wide run" }, unseen, waiting());
  const refused = el("h1", { tabindex: "-1" }, "This run cannot be shown");
  get(path("runs", name), { signal }).then(
    (run) => signal.aborted || new RunView(place, run, tab === "steps" ? tab : "report", signal),
    (error) => signal.aborted || replace(place, refused, failure(error)),
  );
  return place;
}

class RunView {
  constructor(place, run, tab, signal) {
    Object.assign(this, { run, tab, signal });
    this.began = performance.now() - 1000 * (run.seconds ?? 0);
    this.head = new RunHead(run, (click) => this.end(click), (click) => this.goOn(click));
    this.feed = new Feed(() => get(path("runs", run.run, "draft"), { signal }));
    this.rubric = new RubricPanel();
    this.asked = new AskPanel(run.run);
    this.draw(place);
    this.state(run);
    this.tick();
    const heard = {
      hear: (name, data) => this.hear(name, data),
      over: () => this.over(),
      connected: (up) => this.connected(up),
    };
    follow(run.run, heard, signal);
  }

  draw(place) {
    this.lost = el("div");
    this.failed = el("div");
    this.report = el("div", { class: "report-panel stack" });
    this.limits = el("p", { class: "small soft limits-said" });
    if (this.run.limits?.length) this.on_budget(this.run);
    this.tabs = el("nav", { class: "tabs", "aria-label": "Parts of this run", hidden: true });
    const beside = { class: "run-aside stack", "aria-label": "Rubric and limits" };
    this.told = el("div", { class: "small" }, notifying());
    const aside = el("aside", beside, this.rubric.element, this.limits, this.told);
    const parts = [this.failed, this.lost, this.feed.element, this.report];
    const main = el("div", { class: "run-main stack" }, parts);
    const grid = el("div", { class: "run-grid" }, aside, main);
    replace(place, this.head.element, this.tabs, grid);
    earlier(this.run, this.signal).then((turns) => turns && grid.before(turns));
    document.title = `${this.run.question} · rubricem`;
  }

  hear(name, data) {
    if (data.t) this.began = Math.min(this.began, performance.now() - 1000 * data.t);
    this.feed.hear(name, data);
    this[`on_${name}`]?.(data);
  }

  on_stage({ stage }) {
    this.head.reached(stage);
    if (stage !== this.stage) say(`Stage: ${stage}`);
    this.stage = stage;
    this.at("running");
  }

  /** The plan's turn asks for the first search, with which the research begins. */
  on_tool() {
    if (this.stage === "plan") this.on_stage({ stage: "research" });
  }

  on_rubric({ items }) {
    this.rubric.show(items);
  }

  on_budget({ limits }) {
    replace(this.limits, `May take ${limits.join(", ")}.`);
  }

  on_usage(usage) {
    this.head.tell(usage);
  }

  /** What waits for a person stands where the reading has got to. */
  on_ask(asked) {
    this.feed.add(this.asked.ask(asked));
    this.at("asking");
    requestAnimationFrame(() => this.asked.show());
  }

  on_answered({ id, decision }) {
    this.asked.answered(id, decision);
    this.at("running");
  }

  on_finished({ status }) {
    this.head.finished(status);
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
    const live = this.run.state !== "ended";
    try {
      this.state(await get(path("runs", this.run.run), { signal: this.signal }));
      if (live) {
        say(`The run ended: ${stateOf(this.run)[0]}.`);
        if (document.hidden) notify(this.run.question, stateOf(this.run)[0]);
      }
      await this.showEnd();
    } catch (error) {
      if (error.name !== "AbortError") replace(this.report, failure(error));
    }
  }

  async showEnd() {
    this.showTabs();
    this.feed.element.hidden = this.tab !== "steps";
    if (this.tab === "report") replace(this.report, waiting("Loading the report …"));
    const report = await get(path("runs", this.run.run, "report"), { signal: this.signal });
    if (report.rubric.length) this.rubric.show(report.rubric);
    if (!this.stage) this.feed.retell(report.stages);
    if (this.tab === "report") replace(this.report, drawReport(this.run, report));
  }

  showTabs() {
    const run = encodeURIComponent(this.run.run);
    const links = [
      ["report", `#/run/${run}`, "Report"],
      ["steps", `#/run/${run}/steps`, "How it was found"],
      ["scores", `#/judge/${run}`, "Scores"],
    ];
    const current = (name) => (name === this.tab ? "page" : null);
    const link = ([name, href, label]) => el("a", { href, "aria-current": current(name) }, label);
    replace(this.tabs, links.map(link));
    this.tabs.hidden = false;
  }

  /** What an event says of the state; of a run that ended it is history. */
  at(state) {
    if (this.run.state !== "ended") this.state({ state });
  }

  state(run) {
    if (run.state !== this.run.state) dispatchEvent(new Event("runs-changed"));
    this.run = { ...this.run, ...run };
    this.head.state(this.run);
    this.limits.hidden = this.told.hidden = this.run.state === "ended";
  }

  tick() {
    const show = () => {
      const passed = (performance.now() - this.began) / 1000;
      if (this.run.state !== "ended") this.head.time(passed);
    };
    show();
    const timer = setInterval(show, 1000);
    this.signal.addEventListener("abort", () => clearInterval(timer));
  }

  async end({ currentTarget }) {
    const stopping = () => post(path("runs", this.run.run, "stop"));
    if (!(await attempt(this.failed, currentTarget, stopping))) return;
    currentTarget.disabled = true;
    say("Stopping; a report of what there is will follow.");
  }

  /** Go on; where a budget was met, with more of it. */
  goOn({ currentTarget }) {
    const name = metBudget(this.run);
    if (!name) return this.resume(currentTarget, {});
    const cancel = () => {
      replace(this.failed);
      this.more.remove();
      currentTarget.focus();
    };
    this.more?.remove();
    this.more = largerBudget(name, this.run, (...given) => this.resume(...given), cancel);
    this.failed.after(this.more);
    this.more.querySelector("input").focus();
  }

  async resume(control, budgets) {
    const resuming = () => post(path("runs", this.run.run, "resume"), budgets);
    const resumed = await attempt(this.failed, control, resuming);
    if (resumed) dispatchEvent(new HashChangeEvent("hashchange"));
  }

  connected(up) {
    if (this.run.state === "ended") return;
    const said = "The connection was lost; the run goes on.";
    replace(this.lost, up ? null : notice(said, "This page takes it up again by itself."));
  }
}

// One run: watched while it works, its plan approved, its report read; the same after a reload.
import { follow, get, path, post } from "./api.js";
import { AskPanel } from "./approval.js";
import { composer } from "./ask.js";
import { el, replace, say } from "./dom.js";
import { Feed } from "./feed.js";
import { clock, counted, duration, money } from "./format.js";
import { InvestigationTree } from "./investigations.js";
import { notify, notifying } from "./notify.js";
import { attempt, failure, notice, stateOf, waiting } from "./parts.js";
import { away, reachable } from "./reach.js";
import { drawReport } from "./report.js";
import { deepening, largerBudget, metBudget } from "./resume.js";
import { RubricPanel } from "./rubric.js";
import { RunHead } from "./run_head.js";
import { sharing } from "./share.js";
import { t } from "./texts.js";
import { around, folded, turn } from "./turns.js";

const TABS = ["steps", "scores"];
const QUIET = 10;
const LOOK_AGAIN = 3;

export function show([name, tab], signal) {
  const unseen = el("h1", { tabindex: "-1", class: "unseen" }, t("Run"));
  const place = el("div", { class: "view wide run" }, unseen, waiting());
  const refused = el("h1", { tabindex: "-1" }, t("This run cannot be shown"));
  get(path("runs", name), { signal }).then(
    (run) => {
      if (signal.aborted) return;
      if (run.status === "part") replace(place, partOf(run));
      else new RunPage(place, run, TABS.includes(tab) ? tab : "report", signal);
    },
    (error) => signal.aborted || replace(place, refused, failure(error)),
  );
  return place;
}

/** An investigation that is worked on is watched where the whole is. */
function partOf({ question, part_of: lead }) {
  const link = el("a", { href: `#/run/${encodeURIComponent(lead)}` }, t("Watch the whole of it"));
  return [
    el("h1", { tabindex: "-1", dir: "auto" }, question),
    notice(t("This is being investigated, as a part of a larger research."), "", "good"),
    el("p", { class: "more" }, link),
  ];
}

/** A run with what was asked in its thread before it, above, and after it, below. */
class RunPage {
  constructor(place, run, tab, signal) {
    this.signal = signal;
    this.turns = el("ol", { class: "list turns" });
    this.below = el("div", { class: "run-below", hidden: true }, this.turns);
    this.around = around(run, signal);
    const view = this.view = new RunView(run, { tab, ended: () => this.goesOn(view) }, signal);
    replace(place, view.element, this.below);
    this.around.then(({ before }) => before.length && view.grid.before(folded(before)));
    document.title = `${run.question} · rubricem`;
  }

  /** Below the report stand the questions that followed it, and the next one. */
  async goesOn({ run, tab, written }) {
    if (tab !== "report" || !this.below.hidden || run.part_of || !written) return;
    const { before, after } = await this.around;
    if (this.signal.aborted) return;
    this.below.hidden = false;
    for (const each of after) {
      if (each.state === "ended") this.turns.append(turn(each));
      else this.add(each);
    }
    const { efforts } = await get("/api/status").catch(() => ({}));
    if (efforts && "deep" in efforts) {
      const deepen = () => deepening(this.view.run, thread, (started) => this.asked(started));
      this.view.deepen = deepen;
      this.view.head.deepen.hidden = false;
    }
    const several = before.length + after.length > 0 && run.thread;
    // A run that was asked alone, as on the command line, gets a thread with its first follow-up.
    const thread = async () => run.thread ??= (await post("/api/threads", { run: run.run })).id;
    const head = el(
      "div",
      { class: "row apart" },
      el("h2", { id: "follow-title" }, t("Follow up")),
      several && sharing(run.thread, run.question),
    );
    this.next = el(
      "section",
      { class: "follow-up", "aria-labelledby": "follow-title" },
      head,
      composer(thread, (started) => this.asked(started)),
    );
    this.below.append(this.next);
  }

  async asked({ run, thread }) {
    this.view.run.thread = thread;
    this.view.head.place(this.view.run);
    this.add(await get(path("runs", run))).show();
    dispatchEvent(new Event("runs-changed"));
  }

  add(run) {
    const live = new LiveTurn(run, this.signal);
    this.turns.append(live.element);
    return live;
  }
}

/** A question of a thread that is worked on, watched where its answer will stand. */
export class LiveTurn {
  constructor(run, signal) {
    this.view = new RunView(run, { tab: "report", nested: true, ended: () => {} }, signal);
    this.element = el("li", { class: "turn turn-live" }, this.view.element);
  }

  /** Bring it before the eyes, and to the ears. */
  show() {
    this.element.scrollIntoView({ block: "start" });
    this.element.querySelector("h2").focus({ preventScroll: true });
  }
}

class RunView {
  /** `ended` is called once a report is drawn; one that is `nested` is a part of another's page. */
  constructor(run, { tab, ended, nested = false }, signal) {
    Object.assign(this, { run, tab, ended, nested, signal, calls: 0 });
    this.began = performance.now() - 1000 * (run.seconds ?? 0);
    const acts = {
      stop: (click) => this.end(click),
      goOn: (click) => this.goOn(click),
      deepen: () => this.deepen(),
    };
    this.head = new RunHead(run, acts, nested);
    this.feed = new Feed(() => get(path("runs", run.run, "draft"), { signal }));
    this.tree = new InvestigationTree(run.run);
    this.rubric = new RubricPanel();
    this.asked = new AskPanel(run.run);
    this.draw();
    this.state(run);
    this.tick();
    const heard = {
      hear: (name, data) => this.hear(name, data),
      over: () => this.over(),
      connected: (up) => this.connected(up),
    };
    follow(run.run, heard, signal);
  }

  draw() {
    this.lost = el("div");
    this.failed = el("div");
    this.still = el("div", { class: "still" });
    this.report = el("div", { class: "report-panel stack" });
    this.limits = el("p", { class: "small soft limits-said" });
    this.remains = el("p", { class: "small limits-said remains" });
    if (this.run.limits?.length) this.on_budget(this.run);
    this.tabs = el("nav", { class: "tabs", "aria-label": t("Parts of this run"), hidden: true });
    const beside = { class: "run-aside stack", "aria-label": t("Rubric and limits") };
    this.told = el("div", { class: "small" }, notifying());
    const aside = el("aside", beside, this.rubric.element, this.remains, this.limits, this.told);
    const first = el("div", { class: "run-first" }, this.failed, this.lost, this.tree.element);
    const parts = [this.feed.element, this.report, this.still];
    const main = el("div", { class: "run-main stack" }, parts);
    this.grid = el("div", { class: "run-grid" }, first, aside, main);
    this.element = el("div", { class: "run-view" }, this.head.element, this.tabs, this.grid);
  }

  hear(name, data) {
    if (data.t) this.began = Math.min(this.began, performance.now() - 1000 * data.t);
    const at = data.t ? this.began + 1000 * data.t : performance.now();
    this.heardAt = Math.max(this.heardAt ?? at, at);
    this.feed.hear(name, data);
    this[`on_${name}`]?.(data);
  }

  on_state({ state }) {
    this.at(state);
  }

  on_stage({ stage }) {
    this.head.reached(stage);
    if (stage !== this.stage) say(t("Stage: {0}", stage));
    this.stage = stage;
    this.at("running");
  }

  /** The plan's turn asks for the first search, with which the research begins. */
  researches() {
    if (this.stage === "plan") this.on_stage({ stage: "research" });
  }

  on_tool() {
    this.researches();
    this.calls += 1;
  }

  on_results() {
    this.calls -= 1;
  }

  on_rubric({ items }) {
    this.rubric.show(items);
  }

  on_budget({ limits, left, t: at = 0 }) {
    replace(this.limits, t("May take {0}.", limits.join(", ")));
    this.left = { at, ...left };
  }

  on_investigation(part) {
    this.researches();
    this.tree.take(part);
    this.tellUsage();
  }

  on_remarks(remarks) {
    this.tree.remarks(remarks);
  }

  on_usage(usage) {
    this.usage = usage;
    this.tellUsage();
    if (usage.left) this.left = { at: usage.t ?? 0, ...usage.left, priced: usage.cost != null };
  }

  /** What was spent; of deep research the searches are those of its parts. */
  tellUsage() {
    const calls = this.tree.calls || this.usage?.tool_calls;
    this.head.tell({ ...this.usage, tool_calls: calls });
  }

  /** What waits for a person stands where the reading has got to. */
  on_ask(asked) {
    // The plan that is asked about stands once: with the question, and no more above it.
    const planned = ".written-rubric, .written-research_plan";
    if (asked.kind === "plan") {
      for (const block of this.feed.element.querySelectorAll(planned)) {
        block.classList.add("asked-below");
      }
    }
    this.feed.add(this.asked.ask(asked));
    this.at("asking");
    requestAnimationFrame(() => this.asked.show());
  }

  on_answered({ id, decision }) {
    this.asked.answered(id, decision);
    this.at("running");
  }

  /** The run is taken up again: what stands so far is told anew. */
  on_restart() {
    this.feed.clear();
    this.calls = 0;
    this.tree.clear();
    this.asked.over();
    this.rubric.show([]);
  }

  /** The stream came to its end: the run is what the server says it is. */
  async over() {
    if (this.signal.aborted) return;
    this.feed.settle();
    if (this.asked.asked) {
      const hidden = this.feed.element.querySelectorAll(".asked-below");
      for (const block of hidden) block.classList.remove("asked-below");
    }
    this.asked.over();
    const live = this.run.state !== "ended";
    try {
      this.state(await get(path("runs", this.run.run), { signal: this.signal }));
      if (live) {
        say(t("The run ended: {0}.", stateOf(this.run)[0]));
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
    this.tree.show(this.tab === "steps");
    if (this.tab === "report") replace(this.report, waiting(t("Loading the report …")));
    const report = await get(path("runs", this.run.run, "report"), { signal: this.signal });
    this.tree.over(report.investigations);
    const numbers = new Map(report.citations.map(({ id, n }) => [id, n]));
    if (report.rubric.length) this.rubric.show(report.rubric, numbers);
    if (!this.stage) this.feed.retell(report.stages);
    this.written = report.answered;
    if (this.tab === "report") replace(this.report, drawReport(this.run, report));
    if (this.tab === "scores") {
      const { scoresOf } = await import("./judge.js");
      replace(this.report, scoresOf(this.run.run, this.signal));
    }
    this.ended(this);
  }

  showTabs() {
    const run = encodeURIComponent(this.run.run);
    const links = [
      ["report", `#/run/${run}`, t("Report")],
      ["steps", `#/run/${run}/steps`, t("How it was found")],
      ["scores", `#/run/${run}/scores`, t("Scores")],
    ];
    const current = (name) => (name === this.tab ? "page" : null);
    const link = ([name, href, label]) => el("a", { href, "aria-current": current(name) }, label);
    replace(this.tabs, links.map(link));
    this.tabs.hidden = this.nested;
  }

  /** What an event says of the state; of a run that ended it is history. */
  at(state) {
    if (this.run.state !== "ended") this.state({ state });
  }

  state(run) {
    if (run.state !== this.run.state) dispatchEvent(new Event("runs-changed"));
    const named = run.model && run.model !== this.run.model; // known once its model was opened
    this.run = { ...this.run, ...run };
    if (named) this.head.place(this.run, this.nested);
    this.head.state(this.run);
    this.element.classList.toggle("is-asking", this.run.state === "asking");
    const ended = this.run.state === "ended";
    this.limits.hidden = this.remains.hidden = this.told.hidden = ended;
  }

  tick() {
    const show = () => {
      const passed = (performance.now() - this.began) / 1000;
      if (this.run.state === "ended") return void replace(this.still);
      this.quiet();
      this.head.time(passed, left(this.run, this.left, passed));
      replace(this.remains, remaining(this.left, this.run.state === "running" ? passed : 0));
    };
    show();
    const timer = setInterval(show, 1000);
    this.signal.addEventListener("abort", () => clearInterval(timer));
  }

  /** What is waited for, since when, and what can be done, where nothing is heard. */
  async quiet() {
    const { state, ahead } = this.run;
    const passed = (performance.now() - (this.heardAt ?? performance.now())) / 1000;
    const since = clock(new Date(Date.now() - 1000 * passed));
    const whole = Math.floor(passed);
    if (whole >= QUIET && whole % QUIET === 0) reachable();
    if (away() || state === "asking") return replace(this.still);
    if (state === "waiting") {
      if (whole % LOOK_AGAIN === 0) this.place();
      return this.tellStill(ahead > 0
        ? t("It waits for its turn; {0} before it.", counted(ahead, "question waits", "questions wait"))
        : t("It comes next, once a run that goes on has ended."));
    }
    if (state === "loading") {
      return this.tellStill(t("The model and the sources are being made ready, since {0}.", since));
    }
    if (passed < QUIET) return replace(this.still);
    if (this.calls > 0) {
      return this.tellStill(
        t("Nothing was heard from the search since {0}.", since),
        t("A slow page may be waited for. Stop ends the run with what there is."),
      );
    }
    return this.tellStill(
      t("Nothing was heard from the model since {0}.", since),
      t("One that thinks may take a minute. Stop ends the run with what there is; then see whether " +
        "the model's server still works."),
    );
  }

  /** How many are before it now. */
  async place() {
    const run = await get(path("runs", this.run.run), { signal: this.signal }).catch(() => null);
    if (run?.state === "waiting" && this.run.state === "waiting") this.run.ahead = run.ahead;
  }

  tellStill(sentence, remedy = "") {
    if (this.still.textContent === sentence + remedy) return;
    if (!this.still.hasChildNodes()) say(sentence);
    replace(this.still, notice(sentence, remedy));
  }

  async end({ currentTarget }) {
    const stopping = () => post(path("runs", this.run.run, "stop"));
    if (!(await attempt(this.failed, currentTarget, stopping))) return;
    currentTarget.disabled = true;
    say(t("Stopping; a report of what there is will follow."));
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

  async connected(up) {
    if (this.run.state === "ended") return;
    if (!up && !(await reachable())) return;
    const said = t("The connection was lost; the run goes on.");
    replace(this.lost, up ? null : notice(said, t("This page takes it up again by itself.")));
  }
}

/** What a run that goes on may still take, in words: as such runs do, or as its budget says. */
function left({ state, usual_seconds: usual }, budget, passed) {
  if (state !== "running") return "";
  if (usual > passed) return t("about {0}", duration(usual - passed));
  const most = seconds(budget, passed);
  return most > 0 ? t("at most {0}", duration(most)) : "";
}

/** Of the budget of time, counted on since it was told. */
const seconds = (budget, passed) => budget?.max_seconds == null ? null
  : Math.max(0, budget.max_seconds - Math.max(0, passed - budget.at));

/** What is left of each budget. */
function remaining(budget, passed) {
  const left = seconds(budget, passed);
  const said = [
    left != null && duration(left),
    budget?.max_total_tokens != null
      && counted(Math.floor(budget.max_total_tokens), "token"),
    budget?.priced && budget.max_cost != null && money(budget.max_cost),
  ].filter(Boolean);
  return said.length > 0 && t("Left: {0}", said.join(" · "));
}

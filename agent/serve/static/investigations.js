// The investigations of deep research: each with its question, what it does now, what it found.
import { path, post } from "./api.js";
import { el, replace, say } from "./dom.js";
import { capital, counted, number } from "./format.js";
import { icon } from "./icons.js";
import { attempt, badge, button, field, input, stateOf } from "./parts.js";
import { t } from "./texts.js";

const LIVE = ["waiting", "working"];
const DRAWN = {
  waiting: "open", working: "search", finished: "check", partial: "half", no_evidence: "cross",
  failed: "cross", unfinished: "half",
};
const TOOLS = { search: t("Searches for"), open_page: t("Reads") };
const STAGES = {
  plan: t("Plans its searches"),
  review: t("Checks its rubric"),
  answer: t("Writes its report"),
};

export class InvestigationTree {
  constructor(run) {
    this.run = run;
    this.rows = new Map();
    this.count = el("span", { class: "soft small" });
    this.list = el("ol", { class: "investigations" });
    const head = el(
      "div",
      { class: "row apart" },
      el("h2", { id: "investigations" }, t("Investigations")),
      this.count,
    );
    this.element = el(
      "section",
      { class: "card stack tight", "aria-labelledby": "investigations", hidden: true },
      head,
      this.list,
      this.remarking(),
    );
  }

  /** The form of a remark to the lead, and those that were made. */
  remarking() {
    this.said = el("ul", { class: "small remarks" });
    const text = input({ maxlength: 2000, required: true });
    const failed = el("div");
    const send = button(t("Tell the lead"), null, { type: "submit" });
    const submit = async (event) => {
      event.preventDefault();
      const told = () => post(path("runs", this.run, "remarks"), { text: text.value });
      if (await attempt(failed, send, told)) text.value = "";
    };
    this.form = el(
      "form",
      { class: "row remark", on: { submit } },
      el("div", { class: "grow" }, field(t("Anything else to look at?"), text)),
      send,
    );
    return el("div", { class: "stack tight" }, this.said, this.form, failed);
  }

  /** What was said to the lead, of which it has heard the first so many. */
  remarks({ said, heard }) {
    this.remarked = { said, heard };
    const state = (n) => {
      if (n < heard) return badge(t("Taken up"), "good");
      return this.ended ? badge(t("Too late for this report"), "warn")
        : badge(t("Heard at the lead's next turn"));
    };
    replace(
      this.said,
      said.map((text, n) => el("li", { class: "row" }, el("q", { dir: "auto" }, text), state(n))),
    );
  }

  /** An investigation as it stands now. */
  take(part) {
    const before = this.rows.get(part.number);
    const row = before ?? new Row(this.run);
    this.rows.set(part.number, row);
    if (!before) {
      const after = [...this.rows.keys()].filter((number) => number > part.number);
      this.list.insertBefore(row.element, this.rows.get(Math.min(...after))?.element ?? null);
    }
    const ended = !LIVE.includes(part.state) && before && LIVE.includes(before.part.state);
    row.show(part);
    if (ended) say(t("Investigation {0}: {1}", part.number, labelOf(part)[0]));
    this.counted();
  }

  /** Those of a run that ended: what nobody told of them, and none is worked on any more. */
  over(parts) {
    this.ended = this.form.hidden = true;
    if (this.remarked) this.remarks(this.remarked);
    for (const part of parts) this.take({ ...this.rows.get(part.number)?.part, ...part });
    for (const { part } of this.rows.values()) {
      if (LIVE.includes(part.state)) this.take({ ...part, state: "unfinished" });
    }
  }

  /** Searches and pages so far, of all of them. */
  get calls() {
    return [...this.rows.values()].reduce((sum, { part }) => sum + (part.calls ?? 0), 0);
  }

  clear() {
    this.rows.clear();
    this.remarks({ said: [], heard: 0 });
    replace(this.list);
    this.counted();
  }

  show(wanted) {
    this.wanted = wanted;
    this.counted();
  }

  counted() {
    const parts = [...this.rows.values()].map(({ part }) => part);
    this.element.hidden = !parts.length || this.wanted === false;
    const ended = parts.filter((part) => !LIVE.includes(part.state)).length;
    replace(this.count, t("{0} of {1} ended", ended, parts.length));
  }
}

class Row {
  constructor(run) {
    this.failed = el("div");
    this.stop = button(t("Stop"), () => this.end(run), { kind: "small", drawn: "stop" });
    this.tick = el("span", { class: "tick" });
    this.question = el("p", { class: "investigation-question", dir: "auto" });
    this.facts = el("p", { class: "row small soft" });
    this.doing = el("p", { class: "investigation-doing small", dir: "auto" });
    this.reason = el("p", { class: "small soft", dir: "auto" });
    this.said = el("div", { class: "grow" }, this.question, this.facts, this.doing, this.reason);
    this.said.append(this.failed);
    this.element = el("li", {}, this.tick, this.said, this.stop);
  }

  async end(run) {
    const { number } = this.part;
    const stopping = () => post(path("runs", run, "investigations", number, "stop"));
    if (!(await attempt(this.failed, this.stop, stopping))) return;
    this.stop.disabled = true;
    replace(this.stop, t("Stopping …"));
  }

  show(part) {
    this.part = part;
    this.stop.hidden = !LIVE.includes(part.state);
    this.stop.setAttribute("aria-label", t("Stop investigation {0}", part.number));
    const { question, run, state, reason, calls, passages, cited } = part;
    const live = LIVE.includes(state);
    this.element.className = `investigation investigation-${state}`;
    replace(this.tick, icon(DRAWN[state] ?? "half"));
    const report = `#/run/${encodeURIComponent(run)}`;
    const opens = !live && state !== "unfinished" && (calls > 0 || state !== "failed");
    replace(this.question, opens ? el("a", { href: report }, question) : question);
    const found = [
      counted(calls, "call"),
      passages == null ? null : t("{0} found", counted(passages, "passage")),
      cited == null ? null : t("{0} cited", number(cited)),
    ];
    replace(this.facts, badge(...labelOf(part)), el("span", {}, found.filter(Boolean).join(" · ")));
    this.doing.hidden = !live;
    replace(this.doing, live && doing(part));
    this.reason.hidden = live || !reason;
    replace(this.reason, capital(reason || "").replace(/([^.])$/, "$1."));
  }
}

function labelOf({ state }) {
  if (state === "working") return [t("Working"), "live"];
  return stateOf(state === "waiting" ? { state } : { state: "ended", status: state });
}

/** What it does now, in words. */
function doing({ state, stage, tool, query }) {
  if (state === "waiting") return t("Begins when one of the others has ended");
  if (!tool && stage !== "research") return `${STAGES[stage] ?? t("Working")} …`;
  if (!tool) return [t("Reads what it found on "), el("q", {}, query)];
  return [`${TOOLS[tool] ?? TOOLS.search} `, el("q", {}, query)];
}

// Threads: questions that belong together, each knowing what was found before it.
import { get, patch, path, post, remove } from "./api.js";
import { composer } from "./ask.js";
import { el, replace } from "./dom.js";
import { counted, duration, when } from "./format.js";
import {
  attempt, button, confirmed, empty, failure, field, input, into, notice, stateBadge, view,
  waiting,
} from "./parts.js";
import { answerOf } from "./report.js";

export function show([thread], signal) {
  return thread ? one(thread, signal) : all(signal);
}

function all(signal) {
  const place = el("div");
  into(
    place,
    () => get("/api/threads", { signal }),
    ({ threads, problems }) => [problems.map((said) => notice(said)), listed(threads)],
    signal,
  );
  return view(
    "Threads",
    "Every question begins a thread; a follow-up knows the reports and sources before it.",
    place,
  );
}

function listed(threads) {
  if (!threads.length) {
    return empty(
      "No threads yet",
      "Ask a question, and its thread will stand here.",
      el("a", { class: "button primary", href: "#/" }, "Ask a question"),
    );
  }
  const row = (thread) => {
    const facts = [
      el("span", {}, counted(thread.runs.length, "question")),
      el("span", {}, when(thread.updated_at)),
      thread.parent && el("span", {}, "a branch"),
    ];
    return el(
      "li",
      {},
      el(
        "a",
        { class: "item", href: address(thread.id) },
        el("strong", { dir: "auto" }, nameOf(thread)),
        el("span", { class: "row" }, facts),
      ),
    );
  };
  return el("ul", { class: "list" }, threads.map(row));
}

const address = (id) => `#/threads/${encodeURIComponent(id)}`;

const nameOf = ({ title }) => title || "A thread without a question";

function one(name, signal) {
  const place = el(
    "div",
    { class: "view" },
    el("h1", { tabindex: "-1", class: "unseen" }, "Thread"),
    waiting(),
  );
  get(path("threads", name), { signal }).then(
    (thread) => signal.aborted || new ThreadView(place, thread),
    (error) => signal.aborted || replace(
      place,
      el("h1", { tabindex: "-1" }, "This thread cannot be shown"),
      failure(error),
    ),
  );
  return place;
}

/** What was asked in a run's thread before it, folded; null where nothing was. */
export async function earlier(run, signal) {
  if (!run.thread) return null;
  const { runs } = await get(path("threads", run.thread), { signal }).catch(() => ({ runs: [] }));
  const before = runs.slice(0, Math.max(0, runs.findIndex((each) => each.run === run.run)));
  const turns = el("ol", { class: "list turns" });
  const open = () => turns.childElementCount || replace(turns, before.map((each) => turn(each)));
  return before.length ? el(
    "details",
    { class: "fold", on: { toggle: open } },
    el("summary", {}, `${counted(before.length, "question")} before this one`),
    turns,
  ) : null;
}

/** A question of a thread and its answer; `more` stands beside its facts. */
function turn(run, more = null) {
  const facts = el(
    "div",
    { class: "row" },
    stateBadge(run),
    el("span", {}, when(run.started_at)),
    el("span", {}, `took ${duration(run.seconds)}`),
  );
  const link = el(
    "a",
    { class: "turn-link", href: `#/run/${encodeURIComponent(run.run)}` },
    el("strong", { dir: "auto" }, run.question || "A run that is not there any more"),
  );
  const answer = el("div");
  if (run.state === "ended" && run.question) {
    into(answer, () => get(path("runs", run.run, "report")), (report) => {
      const { article, sheet } = answerOf(report);
      return [article, sheet.dialog];
    });
  }
  const head = el("div", { class: "item" }, link, el("div", { class: "row apart" }, facts, more));
  return el("li", { class: "turn" }, head, answer);
}

class ThreadView {
  constructor(place, thread) {
    this.thread = thread;
    this.title = el("h1", { tabindex: "-1", dir: "auto" }, nameOf(thread));
    this.failed = el("div");
    this.actions = el(
      "div",
      { class: "row" },
      button("Rename", () => this.rename(), { kind: "small", drawn: "pen" }),
      button("Delete", () => this.forget(), { kind: "small danger", drawn: "trash" }),
    );
    const parent = thread.parent && el(
      "p",
      { class: "kicker" },
      "Branched from ",
      el("a", { href: address(thread.parent.conversation) }, "an earlier thread"),
    );
    const runs = el("ol", { class: "list turns" }, thread.runs.map((run) => this.turn(run)));
    const next = el(
      "section",
      { class: "follow-up", "aria-labelledby": "next" },
      el("h2", { id: "next" }, "Ask the next question"),
      composer(async () => thread.id),
    );
    replace(
      place,
      el("header", { class: "view-head" }, parent, this.title, this.actions, this.failed),
      thread.runs.length ? runs : el(
        "p",
        { class: "soft" },
        "Nothing was asked in this thread yet.",
      ),
      next,
    );
    document.title = `${nameOf(thread)} · rubricem`;
  }

  turn(run) {
    const branch = button(
      "Branch from here",
      (event) => this.branch(event, run.run),
      { kind: "plain small", drawn: "branch" },
    );
    return turn(run, branch);
  }

  rename() {
    const title = input({ value: this.thread.title, maxlength: 120 });
    const send = button("Keep", null, { kind: "primary small", type: "submit" });
    const back = () => {
      form.replaceWith(this.actions);
      this.actions.querySelector("button").focus();
    };
    const submit = async (event) => {
      event.preventDefault();
      const kept = await attempt(
        this.failed,
        send,
        () => patch(path("threads", this.thread.id), { title: title.value.trim() }),
      );
      if (!kept) return;
      this.thread.title = kept.title;
      replace(this.title, nameOf(this.thread));
      back();
    };
    const form = el(
      "form",
      { class: "row rename", on: { submit } },
      el(
        "div",
        { class: "grow" },
        field("Title", title, "Left empty, the first question names the thread."),
      ),
      send,
      button("Cancel", back, { kind: "plain small" }),
    );
    this.actions.replaceWith(form);
    title.focus();
  }

  async branch({ currentTarget }, run) {
    const branch = await attempt(
      this.failed,
      currentTarget,
      () => post(path("threads", this.thread.id, "branch"), { run }),
    );
    if (branch) location.hash = address(branch.id);
  }

  async forget() {
    const what = "The thread is forgotten. Its runs and their reports stay on disk.";
    if (!(await confirmed("Delete this thread?", what, "Delete"))) return;
    const gone = await attempt(
      this.failed,
      this.actions.lastChild,
      () => remove(path("threads", this.thread.id)).then(() => true),
    );
    if (gone) location.hash = "#/threads";
  }
}

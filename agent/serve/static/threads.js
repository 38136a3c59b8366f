// Threads: questions that belong together, each knowing what was found before it.
import { get, patch, path, post, remove } from "./api.js";
import { composer } from "./ask.js";
import { el, replace } from "./dom.js";
import { counted, when } from "./format.js";
import {
  attempt, button, confirmed, empty, failure, field, input, into, notice, view, waiting,
} from "./parts.js";
import { LiveTurn } from "./run.js";
import { sharing } from "./share.js";
import { t } from "./texts.js";
import { turn } from "./turns.js";

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
    t("Threads"),
    t("Every question begins a thread; a follow-up knows the reports and sources before it."),
    place,
  );
}

function listed(threads) {
  if (!threads.length) {
    return empty(
      t("No threads yet"),
      t("Ask a question, and its thread will stand here."),
      el("a", { class: "button primary", href: "#/" }, t("Ask a question")),
    );
  }
  const row = (thread) => {
    const facts = [
      el("span", {}, counted(thread.runs.length, "question")),
      el("span", {}, when(thread.updated_at)),
      thread.parent && el("span", {}, t("a branch")),
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

const nameOf = ({ title }) => title || t("A thread without a question");

function one(name, signal) {
  const place = el(
    "div",
    { class: "view" },
    el("h1", { tabindex: "-1", class: "unseen" }, t("Thread")),
    waiting(),
  );
  get(path("threads", name), { signal }).then(
    (thread) => signal.aborted || new ThreadView(place, thread, signal),
    (error) => signal.aborted || replace(
      place,
      el("h1", { tabindex: "-1" }, t("This thread cannot be shown")),
      failure(error),
    ),
  );
  return place;
}

class ThreadView {
  constructor(place, thread, signal) {
    this.thread = thread;
    this.signal = signal;
    this.title = el("h1", { tabindex: "-1", dir: "auto" }, nameOf(thread));
    this.failed = el("div");
    this.actions = el(
      "div",
      { class: "row" },
      sharing(thread.id, nameOf(thread)),
      button(t("Rename"), () => this.rename(), { kind: "small", drawn: "pen" }),
      button(t("Delete"), () => this.forget(), { kind: "small danger", drawn: "trash" }),
    );
    const parent = thread.parent && el(
      "p",
      { class: "kicker" },
      t("Branched from "),
      el("a", { href: address(thread.parent.conversation) }, t("an earlier thread")),
    );
    this.runs = el("ol", { class: "list turns" }, thread.runs.map((run) => this.turn(run)));
    this.none = el("p", { class: "soft" }, t("Nothing was asked in this thread yet."));
    this.none.hidden = thread.runs.length > 0;
    const next = el(
      "section",
      { class: "follow-up", "aria-labelledby": "next" },
      el("h2", { id: "next" }, t("Ask the next question")),
      composer(async () => thread.id, (started) => this.asked(started)),
    );
    replace(
      place,
      el("header", { class: "view-head" }, parent, this.title, this.actions, this.failed),
      this.none,
      this.runs,
      next,
    );
    document.title = `${nameOf(thread)} · rubricem`;
  }

  turn(run) {
    const branch = button(
      t("Branch from here"),
      (event) => this.branch(event, run.run),
      { kind: "plain small", drawn: "branch" },
    );
    return run.state === "ended" ? turn(run, branch) : new LiveTurn(run, this.signal).element;
  }

  /** What is asked next stands below what was asked before, while it is answered and then. */
  async asked({ run }) {
    const live = new LiveTurn(await get(path("runs", run)), this.signal);
    this.none.hidden = true;
    this.runs.append(live.element);
    live.show();
  }

  rename() {
    const title = input({ value: this.thread.title, maxlength: 120 });
    const send = button(t("Keep"), null, { kind: "primary small", type: "submit" });
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
        field(t("Title"), title, t("Left empty, the first question names the thread.")),
      ),
      send,
      button(t("Cancel"), back, { kind: "plain small" }),
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
    const what = t("The thread is forgotten. Its runs and their reports stay on disk.");
    if (!(await confirmed(t("Delete this thread?"), what, t("Delete")))) return;
    const gone = await attempt(
      this.failed,
      this.actions.lastChild,
      () => remove(path("threads", this.thread.id)).then(() => true),
    );
    if (gone) location.hash = "#/threads";
  }
}

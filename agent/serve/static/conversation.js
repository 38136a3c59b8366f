// A conversation: questions that belong together, each knowing what was found before it.
import { get, patch, path, post, remove } from "./api.js";
import { composer } from "./ask.js";
import { el, replace } from "./dom.js";
import { counted } from "./format.js";
import {
  attempt, button, confirmed, failure, field, input, waiting,
} from "./parts.js";
import { LiveTurn } from "./run.js";
import { sharing } from "./share.js";
import { t } from "./texts.js";
import { turn } from "./turns.js";

export function show([name], signal) {
  const place = el(
    "div",
    { class: "view" },
    el("h1", { tabindex: "-1", class: "unseen" }, t("Conversation")),
    waiting(),
  );
  get(path("threads", name), { signal }).then(
    (thread) => signal.aborted || new ConversationView(place, thread, signal),
    (error) => signal.aborted || replace(
      place,
      el("h1", { tabindex: "-1" }, t("This conversation cannot be shown")),
      failure(error),
    ),
  );
  return place;
}

const address = (id) => `#/conversations/${encodeURIComponent(id)}`;

const nameOf = ({ title }) => title || t("A conversation without a question");

class ConversationView {
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
      el("a", { href: address(thread.parent.conversation) }, t("an earlier one")),
    );
    this.runs = el("ol", { class: "list turns" }, thread.runs.map((run) => this.turn(run)));
    this.none = el("p", { class: "soft" }, t("Nothing was asked in this conversation yet."));
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
        field(t("Title"), title, t("Left empty, the first question names it.")),
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
    if (await forgotten(this.thread, this.failed, this.actions.lastChild)) {
      location.hash = "#/conversations";
    }
  }
}

/** Delete a conversation with all its own questions, once somebody has said so. */
export async function forgotten({ id, own }, failed, press) {
  const what = own
    ? t("All files of its {0} are deleted for good. What was learnt from them stays in the memory.",
      counted(own, "question"))
    : t("Its questions belong to the conversation that it branched from, and stay there.");
  if (!(await confirmed(t("Delete this conversation?"), what, t("Delete")))) return false;
  const done = () => remove(`${path("threads", id)}?runs=true`).then(() => true);
  const gone = await attempt(failed, press, done);
  if (gone) dispatchEvent(new Event("runs-changed"));
  return gone;
}

/** Delete a question that stands alone, once somebody has said so. */
export async function forgottenRun(run, failed, press) {
  const what = t(
    "All files of this run are deleted for good. What was learnt from it stays in the memory.",
  );
  if (!(await confirmed(t("Delete this conversation?"), what, t("Delete")))) return false;
  const gone = await attempt(failed, press, () => remove(path("runs", run)).then(() => true));
  if (gone) dispatchEvent(new Event("runs-changed"));
  return gone;
}

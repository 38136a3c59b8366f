// Conversations: all that was ever asked, found by its words and tags, named, tagged, deleted.
import { get, patch, path, query } from "./api.js";
import { changesListed } from "./changes.js";
import { el, replace, say } from "./dom.js";
import { counted, duration, when } from "./format.js";
import {
  addressOf, attempt, button, empty, failure, field, grouped, input, notice, stateBadge, titleOf,
  view, waiting,
} from "./parts.js";
import { t } from "./texts.js";

const PAGE = 30;
const TYPED = 250;

export function show(_, signal) {
  const list = new ConversationsView(signal);
  list.look();
  return list.view;
}

class ConversationsView {
  constructor(signal) {
    this.signal = signal;
    this.tag = "";
    this.words = input({
      type: "search",
      maxlength: 1000,
      autocomplete: "off",
      on: { input: () => this.typed(), search: () => this.look() },
    });
    this.tags = el("div", { class: "row" });
    this.count = el("p", { class: "small soft" });
    this.list = el("ul", { class: "list" });
    this.place = el("div");
    this.view = view(
      t("Conversations"),
      t("All that was asked here; a follow-up knows the reports and sources before it."),
      field(t("Search in questions and reports"), this.words),
      this.tags,
      this.count,
      this.place,
    );
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), TYPED);
  }

  /** Begin anew with what is sought now; a reply to what was sought before is passed over. */
  async look() {
    clearTimeout(this.timer);
    const sought = (this.sought = { q: this.words.value.trim(), tag: this.tag });
    if (!this.list.isConnected) replace(this.place, waiting());
    const found = await this.page({}).catch((error) => error);
    if (this.signal.aborted || this.sought !== sought) return;
    if (found instanceof Error) {
      if (found.name !== "AbortError") replace(this.place, failure(found));
      return;
    }
    this.groups = new Map();
    this.threads = {};
    replace(this.list);
    this.take(found);
    this.told(found);
    // One in which nothing was asked yet has no run to be found by.
    const bare = Object.values(found.threads).filter(({ own }) => own === 0);
    this.list.prepend(...bare.map(bareRow));
    const problems = found.problems.map((said) => notice(said));
    const shown = found.found || bare.length ? this.list : nothing(sought);
    replace(this.place, problems, shown, this.more(found.runs));
  }

  /** Show runs, each with the others of its conversation; returns the first new row. */
  take({ runs, threads }) {
    Object.assign(this.threads, threads);
    let first = null;
    for (const more of grouped(runs)) {
      const key = more[0].thread ?? more[0].run;
      const known = this.groups.get(key);
      const all = [...(known?.runs ?? []), ...more];
      const item = this.row(all);
      if (known) known.item.replaceWith(item);
      else this.list.append(item);
      first ??= known ? null : item;
      this.groups.set(key, { item, runs: all });
    }
    return first;
  }

  page(more) {
    return get(`/api/runs${query({ ...this.sought, limit: PAGE, ...more })}`, {
      signal: this.signal,
    });
  }

  told({ found, tags, reading }) {
    const said = counted(found, "question");
    replace(
      this.count,
      reading
        ? t("{0} so far; {1} still to be read for the search.", said, counted(reading, "question"))
        : said,
    );
    say(said);
    const chip = ([name, number]) => button(
      `${name} ${number}`,
      () => {
        this.tag = this.tag === name ? "" : name;
        this.look();
      },
      { kind: "small", "aria-pressed": String(this.tag === name) },
    );
    replace(this.tags, Object.entries(tags).map(chip));
  }

  more(runs) {
    if (runs.length < PAGE) return null;
    const next = button(t("Show more"), () => this.goOn(next, runs.at(-1).run), { kind: "small" });
    return next;
  }

  async goOn(next, before) {
    const failed = el("div");
    next.after(failed);
    const found = await attempt(failed, next, () => this.page({ before }));
    if (!found) return;
    const first = this.take(found);
    next.replaceWith(this.more(found.runs) ?? "");
    first?.querySelector("a").focus({ preventScroll: true });
  }

  /** A conversation: its newest question, or those of its questions that were found. */
  row(runs) {
    const [run] = runs;
    const thread = this.threads[run.thread];
    const many = thread?.runs.length > 1;
    const failed = el("div");
    const change = button(t("Name and tags"), () => this.edit(item, runs, failed), {
      kind: "plain small",
      drawn: "pen",
    });
    const drop = button(t("Delete"), () => this.forget(item, runs, failed, drop), {
      kind: "plain small danger",
      drawn: "trash",
    });
    const facts = [
      stateBadge(run),
      many && el("span", {}, counted(thread.runs.length, "question")),
      el("span", {}, when(run.started_at)),
      many || run.seconds == null ? null : el("span", {}, duration(run.seconds)),
      [...new Set(runs.flatMap(({ tags }) => tags))].map((name) => el("span", { class: "badge" }, name)),
    ];
    const title = titleOf(run, this.threads) || t("A run that cannot be read");
    const item = el(
      "li",
      {},
      el(
        "a",
        { class: "item", href: addressOf(run, this.threads) },
        el("strong", { dir: "auto" }, marked(title, this.sought.q)),
        many ? null : [changesListed(run), this.preview(run)],
        el("span", { class: "row" }, facts),
      ),
      many && el("ul", { class: "hits" }, (this.sought.q ? runs : [run]).map((hit) => el(
        "li",
        {},
        el(
          "a",
          { class: "item", href: `#/run/${encodeURIComponent(hit.run)}` },
          el("span", { dir: "auto" }, marked(hit.question, this.sought.q)),
          changesListed(hit),
          this.preview(hit),
        ),
      ))),
      el("div", { class: "row" }, change, drop),
      failed,
    );
    return item;
  }

  preview({ preview }) {
    return preview && el("p", { class: "small", dir: "auto" }, marked(preview, this.sought.q));
  }

  edit(item, runs, failed) {
    const [run] = runs;
    const thread = this.threads[run.thread];
    const title = input({ value: thread?.named ? thread.title : run.title, maxlength: 120 });
    const tags = input({ value: run.tags.join(", "), maxlength: 1000 });
    const keep = button(t("Keep"), null, { kind: "primary small", type: "submit" });
    const back = () => form.isConnected && item.replaceWith(this.row(runs));
    const submit = async (event) => {
      event.preventDefault();
      const wanted = tags.value.split(",").map((tag) => tag.trim()).filter(Boolean);
      const named = { title: title.value.trim() };
      // Its newest question is named as well: by that its words are found.
      const kept = await attempt(failed, keep, async () => {
        if (thread) Object.assign(thread, await patch(path("threads", thread.id), named));
        return patch(path("runs", run.run), { ...named, tags: wanted });
      });
      if (!kept) return;
      Object.assign(run, kept);
      back();
      window.dispatchEvent(new Event("runs-changed"));
    };
    const form = el(
      "form",
      { class: "item", on: { submit } },
      field(t("Name"), title, t("Left empty, the first question names it.")),
      field(t("Tags"), tags, t("Separated by commas.")),
      el("div", { class: "row" }, keep, button(t("Cancel"), back, { kind: "plain small" })),
      failed,
    );
    replace(item, form);
    title.focus();
  }

  async forget(item, runs, failed, drop) {
    const [run] = runs;
    const thread = this.threads[run.thread];
    const { forgotten, forgottenRun } = await import("./conversation.js");
    const gone = await (thread?.runs.length > 1
      ? forgotten(thread, failed, drop) : forgottenRun(run.run, failed, drop));
    if (!gone) return;
    replace(item, notice(t("Deleted."), "", "good"));
    say(t("The conversation was deleted"));
  }
}

const bareRow = ({ id, title }) => el("li", {}, el(
  "a",
  { class: "item", href: `#/conversations/${encodeURIComponent(id)}` },
  el("strong", { dir: "auto" }, title || t("A conversation without a question")),
  el("span", { class: "row" }, el("span", {}, t("Nothing was asked in this conversation yet."))),
));

/** A text with the words that were sought marked in it. */
function marked(text, sought) {
  const words = sought.match(/[\p{L}\p{N}]+/gu);
  if (!words) return text;
  return text.split(new RegExp(`(${words.join("|")})`, "giu")).map(
    (part, at) => (at % 2 ? el("mark", {}, part) : part)
  );
}

function nothing({ q, tag }) {
  return q || tag ? empty(t("Nothing was found"), t("No question or report holds all of these words.")) : empty(
    t("No conversations yet"),
    t("Ask a question, and it appears here."),
    el("a", { class: "button primary", href: "#/" }, t("Ask a question")),
  );
}

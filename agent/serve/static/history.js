// History: every run that was ever asked, found by its words and tags, named, tagged, deleted.
import { get, patch, path, query, remove } from "./api.js";
import { el, replace, say } from "./dom.js";
import { counted, duration, when } from "./format.js";
import {
  attempt, button, confirmed, empty, failure, field, input, notice, stateBadge, view, waiting,
} from "./parts.js";
import { t } from "./texts.js";

const PAGE = 30;
const TYPED = 250;

export function show(_, signal) {
  const history = new HistoryView(signal);
  history.look();
  return history.view;
}

class HistoryView {
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
      t("History"),
      t("Every question that was asked here, with its report."),
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
    replace(this.list, found.runs.map((run) => this.row(run)));
    this.told(found);
    replace(this.place, found.found ? this.list : nothing(sought), this.more(found.runs));
  }

  page(more) {
    return get(`/api/runs${query({ ...this.sought, limit: PAGE, ...more })}`, {
      signal: this.signal,
    });
  }

  told({ found, tags, reading }) {
    const said = counted(found, "run");
    replace(
      this.count,
      reading
        ? t("{0} so far; {1} still to be read for the search.", said, counted(reading, "run"))
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
    const rows = found.runs.map((run) => this.row(run));
    this.list.append(...rows);
    next.replaceWith(this.more(found.runs) ?? "");
    rows[0]?.querySelector("a").focus({ preventScroll: true });
  }

  row(run) {
    const failed = el("div");
    const change = button(t("Name and tags"), () => this.edit(item, run, failed), {
      kind: "plain small",
      drawn: "pen",
    });
    const drop = button(t("Delete"), () => this.forget(item, run, failed, drop), {
      kind: "plain small danger",
      drawn: "trash",
    });
    const facts = [
      stateBadge(run),
      el("span", {}, when(run.started_at)),
      run.seconds == null ? null : el("span", {}, duration(run.seconds)),
      run.tags.map((name) => el("span", { class: "badge" }, name)),
    ];
    const item = el(
      "li",
      {},
      el(
        "a",
        { class: "item", href: `#/run/${encodeURIComponent(run.run)}` },
        el("strong", { dir: "auto" }, run.title || run.question || t("A run that cannot be read")),
        run.preview && el(
          "p",
          { class: "small", dir: "auto" },
          marked(run.preview, this.sought.q),
        ),
        el("span", { class: "row" }, facts),
      ),
      el("div", { class: "row" }, change, drop),
      failed,
    );
    return item;
  }

  edit(item, run, failed) {
    const title = input({ value: run.title, maxlength: 120 });
    const tags = input({ value: run.tags.join(", "), maxlength: 1000 });
    const keep = button(t("Keep"), null, { kind: "primary small", type: "submit" });
    const back = () => item.replaceWith(this.row(run));
    const submit = async (event) => {
      event.preventDefault();
      const wanted = tags.value.split(",").map((tag) => tag.trim()).filter(Boolean);
      const kept = await attempt(
        failed,
        keep,
        () => patch(path("runs", run.run), { title: title.value.trim(), tags: wanted }),
      );
      if (!kept) return;
      Object.assign(run, kept);
      back();
      window.dispatchEvent(new Event("runs-changed"));
    };
    const form = el(
      "form",
      { class: "item", on: { submit } },
      field(t("Name"), title, t("Left empty, the question names the run.")),
      field(t("Tags"), tags, t("Separated by commas.")),
      el("div", { class: "row" }, keep, button(t("Cancel"), back, { kind: "plain small" })),
      failed,
    );
    replace(item, form);
    title.focus();
  }

  async forget(item, run, failed, drop) {
    const depends = await attempt(failed, drop, () => get(path("runs", run.run, "dependents")));
    if (!depends) return;
    const sentence = ["All files of this run are deleted for good.", ...depends.said].join(" ");
    if (!(await confirmed(t("Delete this run?"), sentence, t("Delete")))) return;
    const gone = await attempt(failed, drop, () => remove(path("runs", run.run)).then(() => true));
    if (!gone) return;
    replace(item, notice(t("Deleted."), "", "good"));
    say(t("The run was deleted"));
    window.dispatchEvent(new Event("runs-changed"));
  }
}

/** A text with the words that were sought marked in it. */
function marked(text, sought) {
  const words = sought.match(/[\p{L}\p{N}]+/gu);
  if (!words) return text;
  return text.split(new RegExp(`(${words.join("|")})`, "giu")).map(
    (part, at) => (at % 2 ? el("mark", {}, part) : part)
  );
}

function nothing({ q, tag }) {
  return q || tag ? empty(t("Nothing was found"), t("No run holds all of these words.")) : empty(
    t("No runs yet"),
    t("Ask a question, and it will stand here."),
    el("a", { class: "button primary", href: "#/" }, t("Ask a question")),
  );
}

// The bank: what judged runs taught, to search and to look through.
import { get, query } from "./api.js";
import { el, replace } from "./dom.js";
import { LearningPanel } from "./learning.js";
import { button, choices, empty, failure, input, notice, view } from "./parts.js";
import { one, row } from "./reflection.js";
import { t } from "./texts.js";

const STATES = [
  ["", t("All")],
  ["active", t("Active")],
  ["quarantine", t("Quarantine")],
];
const PAGE = 30;
const PAUSE = 250;

export function show([item], signal) {
  return item ? one(item, signal) : new BankView(signal).element;
}

class BankView {
  constructor(signal) {
    this.signal = signal;
    this.search = input({
      type: "search",
      placeholder: t("Search by meaning"),
      "aria-label": t("Search the bank"),
    });
    this.state = choices(t("State"), STATES, "", () => this.load());
    this.list = el("ul", { class: "list" });
    this.rest = el("div", { class: "more" });
    this.stats = el("p", { class: "soft small", role: "status" });
    let timer = 0;
    this.search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.load(), PAUSE);
    });
    const learning = new LearningPanel(signal, () => {
      this.load();
      this.count();
    });
    const tools = el("div", { class: "bank-tools" }, this.search, this.state);
    this.element = view(
      t("Memory"),
      t("What judged runs taught, put before similar questions. What looks like an attack waits in " +
        "quarantine."),
      learning.element,
      tools,
      this.stats,
      this.list,
      this.rest,
    );
    this.load();
    this.count();
  }

  async count() {
    const stats = await get("/api/bank/stats", { signal: this.signal }).catch(() => null);
    if (stats) replace(this.stats, statsSaid(stats));
  }

  /** The first page anew, or the next one after the last item shown. */
  async load(before = "") {
    const asked = (this.asked = Symbol("asked"));
    const wanted = {
      query: this.search.value.trim(),
      state: this.state.value(),
      limit: PAGE,
      before,
    };
    try {
      const { items, next, note } = await get(`/api/bank${query(wanted)}`, { signal: this.signal });
      if (asked !== this.asked) return;
      if (!before) replace(this.list);
      this.list.append(...items.map(row));
      replace(this.rest, note && notice(note), this.after(wanted, next));
    } catch (error) {
      if (error.name !== "AbortError") replace(this.rest, failure(error));
    }
  }

  after(wanted, next) {
    if (!this.list.children.length) return nothing(wanted);
    return next ? button(t("Show more"), () => this.load(next)) : null;
  }
}

function nothing({ query: words, state }) {
  return words || state
    ? empty(t("Nothing found"), t("Nothing is like that. Try other words, or all states."))
    : empty(
      t("No lessons yet"),
      t("One is written when a run is judged: `rubricem learn`, or ask with memory on."),
    );
}

function statsSaid({ live, quarantined }) {
  return [
    live && t("{0} active", live),
    quarantined && t("{0} in quarantine", quarantined),
  ].filter(Boolean).join(" · ");
}

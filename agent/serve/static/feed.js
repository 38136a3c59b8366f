// What a run does, in the order in which it does it: stages, what it writes, searches, notes.
import { classes, el, replace } from "./dom.js";
import { capital, counted, whereabouts } from "./format.js";
import { icon } from "./icons.js";
import { typeset } from "./maths.js";
import { outward } from "./parts.js";
import { sanitised } from "./sanitise.js";
import { t } from "./texts.js";
import { Writing } from "./writing.js";

const TOOLS = {
  search: ["search", t("Searched")],
  open_page: ["page", t("Opened a page")],
  investigate: ["branch", t("Investigated")],
};
const NEAR = 120;
const SHOWN = 4;

export class Feed {
  /** `draft` brings the answer as far as it is written, as markup. */
  constructor(draft) {
    this.draft = draft;
    this.element = el("div", { class: "feed" });
    this.stage = null;
    this.calls = new Map();
    this.section = null;
    this.writing = new Writing((label, name) => this.block(label, name));
  }

  /** Take an event; whoever reads at the end of the page stays there. */
  hear(name, data) {
    const take = this[`on_${name}`];
    if (!take) return;
    const root = document.documentElement;
    const near = root.scrollHeight - root.scrollTop - root.clientHeight < NEAR
      && root.scrollTop > 0;
    take.call(this, data);
    if (near && this.element.isConnected) root.scrollTop = root.scrollHeight;
  }

  clear() {
    this.settle();
    [this.stage, this.section] = [null, null];
    this.calls.clear();
    replace(this.element);
  }

  /** Nothing more comes of what was being written. */
  settle() {
    this.writing.end();
  }

  /** A run whose events nobody kept, by the text of its stages. */
  retell(stages) {
    for (const { stage, text } of stages) this.on_text({ stage, text });
    this.settle();
  }

  on_stage({ stage }) {
    if (stage === this.stage) return;
    this.writing.end();
    if (!this.section) this.noted?.remove(); // what was waited for is there
    this.stage = stage;
    this.section = el("div", { class: "feed-body" });
    this.element.append(el(
      "section",
      { class: "feed-stage", "aria-label": capital(stage) },
      el("h2", {}, capital(stage)),
      this.section,
    ));
  }

  on_text({ stage, text }) {
    this.on_stage({ stage });
    this.writing.take(text);
  }

  /** The first search is where the research begins, although the plan's turn asks for it. */
  on_tool({ number, name, query }) {
    if (this.stage === "plan") this.on_stage({ stage: "research" });
    this.writing.end();
    const [drawn, said] = TOOLS[name] ?? ["search", t("Searched")];
    const state = el("span", { class: "soft small" }, "…");
    const found = el("ul", { class: "found" });
    this.calls.set(number, { state, found });
    this.add(el(
      "div",
      { class: "call" },
      el(
        "p",
        { class: "call-head" },
        icon(drawn),
        el("span", { class: "unseen" }, said),
        el("q", {}, query),
        state,
      ),
      found,
    ));
  }

  on_results({ number, sources, seconds, error }) {
    const call = this.calls.get(number);
    if (!call) return;
    replace(
      call.state,
      error ? "failed" : `${counted(sources.length, "passage")} · ${(seconds ?? 0).toFixed(1)} s`,
    );
    if (error) replace(call.found, el("li", { class: "wrong" }, error));
    else replace(
      call.found,
      sources.slice(0, SHOWN).map(sourceRow),
      sources.length > SHOWN && el(
        "li",
        { class: "soft" },
        t("and {0} more", sources.length - SHOWN),
      ),
    );
  }

  on_retry({ reason }) {
    this.writing.end();
    this.note(t("Asked again"), reason, "warn");
  }

  /** A note takes the place of the one before it, if nothing stands between. */
  on_note({ message }) {
    const last = (this.section ?? this.element).lastChild;
    if (this.noted && this.noted === last) last.remove();
    this.noted = this.note("", message);
  }

  on_recalled({ count, own }) {
    if (!count) return;
    const were = count === 1 ? "was" : "were";
    const which = own ? t(", one of them of this very question") : "";
    const what = counted(count, "reflection");
    this.note("", t("{0} of earlier runs {1} put before the question{2}.", what, were, which));
  }

  note(label, sentence, kind = "") {
    const said = el(
      "p",
      { class: classes("feed-note", kind) },
      label && el("strong", {}, `${label}: `),
      sentence,
    );
    this.add(said);
    return said;
  }

  /** A block of what the policy writes; what is returned takes its text. */
  block(label, name) {
    if (name === "call_tool") return () => {}; // its event says it better
    const text = document.createTextNode("");
    const shown = el("div", {}, el("p", { dir: "auto" }, text));
    const heading = label && el("h3", {}, label);
    this.add(el("div", { class: `written written-${name}` }, heading, shown));
    const redraw = name === "answer" && this.drawn(shown);
    let begun = false;
    return (piece) => {
      text.appendData(begun ? piece : piece.trimStart());
      begun ||= Boolean(piece.trim());
      if (redraw) redraw();
    };
  }

  /** Draws the draft in the place of its text: one at a time, and once more for what came since. */
  drawn(place) {
    let [wanted, drawing] = [false, false];
    return async () => {
      wanted = true;
      if (drawing) return;
      drawing = true;
      while (wanted) {
        wanted = false;
        const { html } = await this.draft().catch(() => ({ html: "" }));
        if (!html) continue;
        // Typeset before it is shown, so that no formula is seen as its source in between.
        const next = el("div", {}, sanitised(html));
        await typeset(next);
        replace(place, ...next.childNodes);
        place.className = "report";
        place.dir = "auto";
      }
      drawing = false;
    };
  }

  add(element) {
    (this.section ?? this.element).append(element);
  }
}

function sourceRow(source) {
  return el(
    "li",
    {},
    el("span", { class: "source-id" }, source.id),
    outward(source.title || whereabouts(source.url), source.url),
    el("span", { class: "soft" }, whereabouts(source.url)),
  );
}

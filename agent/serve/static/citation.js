// One citation at a time, held beside the claim: passage, place, and what checking it came to.
import { el, fresh, replace } from "./dom.js";
import { whereabouts } from "./format.js";
import { badge, button, outward } from "./parts.js";
import { t } from "./texts.js";

export const VERDICTS = {
  supported: [t("Supported by this passage"), "good"],
  partial: [t("Supported in part"), "warn"],
  unsupported: [t("Not supported by this passage"), "bad"],
  unchecked: [t("Not checked"), ""],
};

export class CitationSheet {
  /** `citations` in order of appearance; `sources` by id. */
  constructor(citations, sources) {
    this.citations = citations;
    this.sources = sources;
    this.title = el("h2", { id: fresh("citation") });
    this.body = el("div", { class: "stack" });
    this.before = button(t("Previous"), () => this.turn(-1), { kind: "small", drawn: "left" });
    this.after = button(t("Next"), () => this.turn(1), { kind: "small", drawn: "right" });
    this.doubtful = button(
      t("Next in doubt"),
      () => this.turn(1, doubtful),
      { kind: "small", drawn: "warn" },
    );
    const close = button(t("Close"), () => this.dialog.close(), { kind: "plain small" });
    const head = el("div", { class: "row apart sheet-head" }, this.title, close);
    this.dialog = el(
      "dialog",
      {
        class: "sheet",
        "aria-labelledby": this.title.id,
        on: { click: (event) => event.target === this.dialog && this.dialog.close() },
      },
      head,
      this.body,
      el("div", { class: "row sheet-foot" }, this.before, this.after, this.doubtful),
    );
  }

  open(place) {
    this.show(place);
    if (!this.dialog.open) this.dialog.showModal();
  }

  show(place) {
    this.place = place;
    const citation = this.citations[place];
    replace(this.title, t("Citation {0} of {1}", place + 1, this.citations.length));
    replace(this.body, this.claim(citation), passageOf(citation, this.sources.get(citation.id)));
    this.dialog.scrollTop = 0;
    this.before.disabled = place === 0;
    this.after.disabled = place === this.citations.length - 1;
    this.doubtful.hidden = !this.citations.some(doubtful);
  }

  turn(step, wanted = () => true) {
    const count = this.citations.length;
    for (let i = 1; i <= count; i += 1) {
      const place = (this.place + i * step + count) % count;
      if (wanted(this.citations[place])) return this.show(place);
    }
  }

  claim({ claim, verdict, why }) {
    const [said, kind] = VERDICTS[verdict] ?? VERDICTS.unchecked;
    return el(
      "div",
      { class: "stack tight" },
      el("blockquote", { class: "claim", dir: "auto" }, claim),
      el("div", {}, badge(said, kind)),
      why && el("p", { class: "small soft", dir: "auto" }, why),
    );
  }
}

export const doubtful = ({ verdict }) => verdict === "unsupported" || verdict === "partial";

function passageOf(citation, source) {
  if (!source) return el("p", { class: "soft" }, t("The passage is not kept."));
  const where = [
    whereabouts(source.url),
    source.page ? t("page {0}", source.page) : "",
    source.place,
  ].filter(Boolean);
  const head = el(
    "div",
    {},
    el("p", { class: "source-title" }, outward(source.title, source.url)),
    el("p", { class: "small soft" }, [...new Set(where)].join(" · ")),
  );
  return el(
    "section",
    { class: "stack tight", "aria-label": t("Passage") },
    head,
    el(
      "p",
      { class: "passage", dir: "auto", tabindex: "0" },
      marked(source.passage, citation.quotes ?? [citation.quote]),
    ),
  );
}

/** The passage with what the claim rests on marked: pieces of it, in their order. */
function marked(passage, quotes) {
  const parts = [];
  let from = 0;
  for (const quote of quotes) {
    const at = quote ? passage.indexOf(quote, from) : -1;
    if (at < 0) continue;
    parts.push(passage.slice(from, at), el("mark", {}, quote));
    from = at + quote.length;
  }
  return [...parts, passage.slice(from)];
}

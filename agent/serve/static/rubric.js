// The rubric that the run wrote for its question, as a checklist that fills in.
import { el, replace } from "./dom.js";
import { counted } from "./format.js";
import { icon } from "./icons.js";
import { t } from "./texts.js";

const STATES = {
  met: ["check", t("met")],
  partly: ["half", t("met in part")],
  missing: ["cross", t("missing")],
  open: ["open", t("open")],
  unmarked: ["", ""],
};
const WIDE = "(min-width: 72.01rem)";

export class RubricPanel {
  constructor() {
    this.count = el("span", { class: "soft small" });
    this.list = el("ul", { class: "rubric" });
    this.empty = el("p", { class: "soft small" }, t("The run writes it with its plan."));
    const summary = el("summary", {}, el("span", { class: "panel-name" }, t("Rubric")), this.count);
    this.element = el(
      "details",
      { class: "card rubric-card fold", open: matchMedia(WIDE).matches },
      summary,
      this.empty,
      this.list,
    );
  }

  /** Show the items as they stand now; `numbers`: of the report's sources, by their ids. */
  show(items, numbers = new Map()) {
    this.empty.hidden = items.length > 0;
    const met = items.filter((item) => item.state === "met").length;
    const marked = items.some((item) => item.state !== "open" && item.state !== "unmarked");
    const all = items.length ? counted(items.length, "item") : "";
    replace(this.count, marked ? t("{0} of {1} met", met, items.length) : all);
    replace(this.list, items.map((item) => row(item, numbers)));
  }
}

/** The sources as the report numbers them; those that it does not cite have no number. */
function numbered(note, numbers) {
  if (!numbers.size) return note;
  const cited = note.match(/\bS\d+\b/g)?.filter((id) => numbers.has(id)) ?? [];
  return cited.map((id) => `[${numbers.get(id)}]`).join(", ");
}

function row({ text, state, note }, numbers) {
  const [drawn, said] = STATES[state] ?? STATES.unmarked;
  const sources = numbered(note ?? "", numbers);
  const judged = el(
    "p",
    { class: "small soft", dir: "auto" },
    el("span", { class: "state" }, said),
    sources ? ` · ${sources}` : "",
  );
  const words = el("div", {}, el("p", { dir: "auto" }, text), said && judged);
  return el(
    "li",
    { class: `item-${said ? state : "unmarked"}` },
    el("span", { class: "tick" }, drawn && icon(drawn)),
    words,
  );
}

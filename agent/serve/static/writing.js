// The policy's text while it comes: pieces in, its tagged blocks out.
//
// The tags of the scaffold open and close blocks that have a name for people; whatever else looks
// like a tag is text. A tag may arrive in several pieces, so an unfinished one is held back.
import { t } from "./texts.js";

const LABELS = {
  think: t("Thinking"),
  deep_analysis: t("Analysis"),
  rubric: t("Rubric"),
  research_plan: t("Research plan"),
  call_tool: "",
  tool_output: t("Found"),
  state_evaluation: t("Where it stands"),
  rubric_review: t("Rubric, item by item"),
  writing_plan: t("Writing plan"),
  answer: t("Answer, as it is written"),
};
const SILENT = new Set(["structured_plan", "review", "cite", "snippet"]);
const TAG = /<(\/?)([a-z_]+)((?:\s[^<>]*)?)>/g;
const LONGEST_TAG = 200;

export class Writing {
  /** `open(label, name)` begins a block and returns what takes its text. */
  constructor(open) {
    this.open = open;
    this.held = "";
    this.block = null;
  }

  take(piece) {
    const text = this.held + piece;
    const start = unfinished(text);
    this.held = text.slice(start);
    let at = 0;
    const ready = text.slice(0, start);
    for (const tag of ready.matchAll(TAG)) {
      if (!(tag[2] in LABELS) && !SILENT.has(tag[2])) continue;
      this.write(ready.slice(at, tag.index));
      this.turn(tag[1] === "/", tag[2]);
      at = tag.index + tag[0].length;
    }
    this.write(ready.slice(at));
  }

  /** Nothing more comes: what was held back is text. */
  end() {
    this.write(this.held);
    this.held = "";
    this.block = null;
  }

  turn(closes, name) {
    if (SILENT.has(name)) return;
    this.block = closes ? null : this.open(LABELS[name], name);
  }

  write(text) {
    if (this.block === null && !text.trim()) return;
    this.block ??= this.open("", "text");
    this.block(text);
  }
}

/** Where a tag begins that the text does not end; the text's length where there is none. */
function unfinished(text) {
  const at = text.lastIndexOf("<");
  const partial = at >= 0 && !text.includes(">", at) && text.length - at < LONGEST_TAG;
  return partial && /^<\/?[a-z_]*(\s|$)/.test(text.slice(at)) ? at : text.length;
}

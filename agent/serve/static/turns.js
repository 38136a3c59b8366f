// Questions of a thread with their answers, as they stand before and after one of them.
import { get, path } from "./api.js";
import { el, replace } from "./dom.js";
import { counted, duration, when } from "./format.js";
import { into, stateBadge } from "./parts.js";
import { answerOf } from "./report.js";
import { t } from "./texts.js";

/** What was asked in a run's thread before it and after it. */
export async function around(run, signal) {
  if (!run.thread) return { before: [], after: [] };
  const { runs } = await get(path("threads", run.thread), { signal }).catch(() => ({ runs: [] }));
  const at = runs.findIndex((each) => each.run === run.run);
  return { before: runs.slice(0, Math.max(0, at)), after: at < 0 ? [] : runs.slice(at + 1) };
}

/** The questions before one, folded; null where there are none. */
export function folded(before) {
  const turns = el("ol", { class: "list turns" });
  const open = () => turns.childElementCount || replace(turns, before.map((each) => turn(each)));
  return before.length ? el(
    "details",
    { class: "fold", on: { toggle: open } },
    el("summary", {}, t("{0} before this one", counted(before.length, "question"))),
    turns,
  ) : null;
}

/** A question of a thread and its answer; `more` stands beside its facts. */
export function turn(run, more = null) {
  const facts = el(
    "div",
    { class: "row" },
    stateBadge(run),
    el("span", {}, when(run.started_at)),
    el("span", {}, t("took {0}", duration(run.seconds))),
  );
  const link = el(
    "a",
    { class: "turn-link", href: `#/run/${encodeURIComponent(run.run)}` },
    el("strong", { dir: "auto" }, run.question || t("A run that is not there any more")),
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

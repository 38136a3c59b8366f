// The report: its citations open, what checking them came to, and what can be done with it.
import { keyed, path, post } from "./api.js";
import { changesTold } from "./changes.js";
import { CitationSheet, VERDICTS, doubtful } from "./citation.js";
import { el, replace, say } from "./dom.js";
import { counted, share, whereabouts } from "./format.js";
import { icon } from "./icons.js";
import { typeset } from "./maths.js";
import { attempt, badge, button, choices, empty, field, input, notice, outward } from "./parts.js";
import { sanitised } from "./sanitise.js";
import { save } from "./share.js";
import { t } from "./texts.js";

const EXPORTS = [
  ["md", "Markdown"], ["html", t("Page")], ["pdf", "PDF"], ["json", "JSON"],
  ["bib", "BibTeX"], ["ris", "RIS"],
];
const RATINGS = ["1", "2", "3", "4", "5"].map((value) => [value, value]);

/** The answer, or that there is none, and the sheet that its marks open; `told`: why is said above. */
export function answerOf(report, told = false) {
  const sheet = new CitationSheet(
    report.citations,
    new Map(report.sources.map((source) => [source.id, source])),
  );
  const article = el("article", { class: "report", dir: "auto" }, sanitised(report.html));
  typeset(article);
  article.addEventListener("click", (event) => {
    const mark = event.target.closest("[data-citation]");
    const place = Number(mark?.dataset.citation) - 1;
    if (mark && report.citations[place]) sheet.open(place);
  });
  const none = () => empty(
    t("No answer was written"),
    (!told && report.reason) || t("The run ended before it came to one."),
  );
  return { article: report.answered ? article : none(), sheet };
}

/** Everything below the head of a run that ended. */
export function drawReport(run, report) {
  const { article, sheet } = answerOf(report, report.status !== "finished");
  return [
    ended(report),
    changesTold(run),
    verdicts(report, sheet),
    article,
    sources(report),
    report.end_notes.length > 0 && section(t("Notes"), listed(report.end_notes)),
    repaired(report),
    recalled(report),
    report.answered && foot(run, report),
    sheet.dialog,
  ];
}

function ended({ status, reason }) {
  const failed = status === "failed";
  return status !== "finished" && reason && [
    notice(reason.charAt(0).toUpperCase() + reason.slice(1), "", failed ? "bad" : "warn"),
    failed && el("p", { class: "small" }, el("a", { href: "#/settings" }, t("Model and keys"))),
  ];
}

const COUNTED = {
  supported: t("supported"),
  partial: t("in part"),
  unsupported: t("not supported"),
  unchecked: t("not checked"),
};

/** How many citations hold, and what else a reader should know first; doubts are a press away. */
function verdicts({ citations, html, notes, reason }, sheet) {
  const said = notes.filter((note) => !reason || !note.includes(reason));
  const below = said.length > 0 && listed(said);
  if (!citations.length) return below;
  const counts = Object.keys(VERDICTS).map(
    (name) => [name, citations.filter((one) => one.verdict === name).length]
  );
  const shown = counts.filter(([, count]) => count).map(
    ([name, count]) => badge(`${count} ${COUNTED[name]}`, VERDICTS[name][1])
  );
  const bare = sanitised(html).querySelectorAll("sup.cite > i").length;
  const first = citations.findIndex(doubtful);
  const look = first >= 0 && button(
    t("Show doubts"),
    () => sheet.open(first),
    { kind: "small", drawn: "warn" },
  );
  const row = el(
    "div",
    { class: "row" },
    el("span", { class: "verdicts-title" }, counted(citations.length, "citation")),
    shown,
    bare > 0 && badge(t("{0} without a source", counted(bare, "claim")), "bad"),
    look,
  );
  return el(
    "section",
    { class: "verdicts stack tight", "aria-label": t("Citations checked") },
    row,
    below,
  );
}

function listed(notes) {
  return el("ul", { class: "small soft" }, notes.map((note) => el("li", { dir: "auto" }, note)));
}

function sources({ sources: found, citations }) {
  const cited = found.filter((source) => citations.some((citation) => citation.id === source.id));
  const numbers = new Map(citations.map((citation) => [citation.id, citation.n]));
  cited.sort((a, b) => numbers.get(a.id) - numbers.get(b.id));
  const rest = found.filter((source) => !cited.includes(source));
  if (!found.length) return null;
  return section(
    t("Sources"),
    cited.length > 0 && el(
      "ol",
      { class: "sources" },
      cited.map((source) => sourceRow(source, numbers.get(source.id))),
    ),
    rest.length > 0 && el(
      "details",
      { class: "fold" },
      el("summary", {}, t("{0} found and not cited", counted(rest.length, "passage"))),
      el("ol", { class: "sources" }, rest.map((source) => sourceRow(source, source.id))),
    ),
  );
}

function sourceRow(source, number) {
  const where = [
    whereabouts(source.url),
    source.page ? t("page {0}", source.page) : "",
    source.place,
  ].filter(Boolean);
  const passage = el(
    "details",
    { class: "fold" },
    el("summary", {}, t("Passage")),
    el("p", { class: "passage", dir: "auto" }, source.passage),
  );
  return el(
    "li",
    {},
    el("span", { class: "source-number" }, String(number)),
    el(
      "div",
      {},
      el("p", { class: "source-title" }, outward(source.title, source.url)),
      el("p", { class: "small soft" }, [...new Set(where)].join(" · ")),
      passage,
    ),
  );
}

function repaired({ verified }) {
  const repairs = verified?.repairs ?? [];
  if (!repairs.length) return null;
  const rows = repairs.map(
    ({ claim, became }) => el(
      "li",
      {},
      el("p", {}, el("del", { dir: "auto" }, claim)),
      el(
        "p",
        { class: "small soft", dir: "auto" },
        became ? t("Rewritten: {0}", became) : t("Removed"),
      ),
    )
  );
  return section(t("Claims that no source holds"), el("ul", { class: "list plain-list" }, rows));
}

function recalled({ recalled: items }) {
  if (!items?.length) return null;
  const row = ({ id, question, own, similarity, score }) => {
    const facts = [
      own ? t("this very question") : t("a similar question"),
      similarity != null && t("likeness {0}", share(similarity)),
      score != null && t("score {0}", share(score)),
    ].filter(Boolean);
    return el(
      "li",
      {},
      el(
        "a",
        { class: "item", href: `#/memory/${encodeURIComponent(id)}` },
        el("strong", {}, question || id),
        el("span", { class: "small soft" }, facts.join(" · ")),
      ),
    );
  };
  return section(t("Recalled from earlier runs"), el("ul", { class: "list" }, items.map(row)));
}

/** The report goes to the clipboard as Markdown, where the browser lets the page have one. */
function copying(report) {
  const copy = async () => {
    await navigator.clipboard.writeText(report.markdown);
    say(t("Copied."));
    replace(pressed, icon("check"), t("Copied"));
  };
  const pressed = button(t("Copy"), copy, { kind: "small", drawn: "page" });
  return Boolean(navigator.clipboard) && pressed;
}

/** The report as a file, or why there is none of this kind. */
async function exported(address, name, failed) {
  replace(failed);
  const reply = await fetch(address, { headers: keyed() }).catch(() => null);
  if (reply?.ok) return save(new File([await reply.blob()], name));
  const { error, remedy } = (await reply?.json().catch(() => null)) ?? {};
  return replace(failed, notice(error ?? t("The server cannot be reached."), remedy ?? "", "bad"));
}

function foot(run, report) {
  const failed = el("div");
  const take = (event, kind) => {
    event.preventDefault();
    const address = path("runs", run.run, "export", kind);
    exported(address, `rubricem-${run.run}.${kind}`, failed);
  };
  const links = EXPORTS.map(
    ([kind, label]) => el(
      "a",
      {
        class: "button small",
        href: path("runs", run.run, "export", kind),
        on: { click: (event) => take(event, kind) },
      },
      icon("down"),
      label,
    )
  );
  return el(
    "div",
    { class: "report-foot" },
    section(t("Take it with you"), el("div", { class: "row" }, copying(report), links), failed),
    rating(run),
  );
}

function rating(run) {
  const said = el("div");
  const score = choices(t("Rating, from 1 of no use to 5 just what was asked for"), RATINGS, null);
  const note = input(
    { placeholder: t("What was good or bad about it (optional)"), maxlength: 2000 }
  );
  const send = button(t("Rate"), null, { type: "submit" });
  const submit = async (event) => {
    event.preventDefault();
    if (!score.value()) return replace(said, notice(t("Choose a number from 1 to 5 first.")));
    const kept = await attempt(
      said,
      send,
      () => post(
        path("runs", run.run, "rate"),
        { rating: Number(score.value()), note: note.value.trim() },
      ),
    );
    if (kept) replace(said, notice(t("Thank you."), kept.said, "good"));
  };
  const scale = el(
    "div",
    { class: "row" },
    el("span", { class: "small soft" }, t("of no use")),
    score,
    el("span", { class: "small soft" }, t("just right")),
  );
  return section(
    t("How good is it?"),
    el(
      "form",
      { class: "stack tight", on: { submit } },
      scale,
      el(
        "div",
        { class: "row rate-row" },
        el("div", { class: "grow" }, field(t("Remark"), note)),
        send,
      ),
      said,
    ),
  );
}

function section(title, ...children) {
  return el("section", { class: "part" }, el("h2", {}, title), children);
}


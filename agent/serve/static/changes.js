// What changed in the report of a watched question since the one before it.
import { el } from "./dom.js";
import { counted } from "./format.js";
import { badge } from "./parts.js";
import { t } from "./texts.js";

const FEW = 3;
const MANY = 8;
const CLAIM = [[t("New"), "good"], [t("No longer said"), "warn"]];
const SOURCE = [[t("New source")], [t("Source no longer cited")]];

const said = ({ text, places, gone }) => [
  badge(...(places.length ? CLAIM : SOURCE)[Number(gone)]),
  " ",
  el("span", { dir: "auto" }, text),
];

const andMore = (count) => t("and {0} more", counted(count, "change"));

/** Lines on what changed, each in an element of its own; none for a run that is not watched. */
function lines({ not_compared: why, changes }, tag, most) {
  if (why) return [el(tag, {}, t("Not compared with the report before: {0}", why))];
  if (!changes.length) return [el(tag, {}, t("Nothing changed since the report before."))];
  const left = changes.length - most;
  return [
    ...changes.slice(0, most).map((change) => el(tag, {}, said(change))),
    ...(left > 0 ? [el(tag, {}, andMore(left))] : []),
  ];
}

/** The first of them, where runs are listed. */
export const changesListed = ({ changes }) => changes && el(
  "div",
  { class: "small stack tight" },
  lines(changes, "p", FEW),
);

/** All of them, above a report; those beyond the first are folded. */
export function changesTold({ changes }) {
  if (!changes) return null;
  const before = changes.since && el(
    "a",
    { href: `#/run/${encodeURIComponent(changes.since)}` },
    t("The report before"),
  );
  const list = (shown) => el("ul", { class: "list plain-list" }, shown);
  const all = lines(changes, "li", Infinity);
  const rest = all.slice(MANY);
  return el(
    "section",
    { class: "part" },
    el("h2", {}, t("What changed")),
    list(all.slice(0, MANY)),
    rest.length > 0 && el("details", { class: "fold" }, el("summary", {}, andMore(rest.length)), list(rest)),
    before && el("p", { class: "small" }, before),
  );
}

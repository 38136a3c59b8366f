// Every setting in force: its value, where that came from, what it means, and how it is changed.
import { get, patch } from "./api.js";
import { el, fresh, replace } from "./dom.js";
import { from, ModelForm } from "./model.js";
import {
  attempt, badge, button, choices, field, input, into, notice, view, worded,
} from "./parts.js";
import { t } from "./texts.js";

const EFFORTS = [["quick", t("Quick")], ["standard", t("Standard")], ["deep", t("Deep")]];
const NUMBERS = [
  ["tool_calls", t("Searches"), 1],
  ["max_seconds", t("Seconds"), "any"],
  ["max_total_tokens", t("Tokens"), 1],
  ["max_cost", t("US dollars"), "any"],
];

export function show(_, signal) {
  const place = el("div");
  const draw = (told) => drawn(told, (next) => {
    replace(place, notice(t("Kept in {0}. It holds from the next question on.", next.page_file), "", "good"), draw(next));
    dispatchEvent(new Event("settings-changed"));
  });
  into(place, () => get("/api/settings", { signal }), draw, signal);
  return view(
    t("Settings"),
    t("What holds on this server, and where each value comes from; those with a mark can be chosen "
      + "beside each question, too."),
    place,
  );
}

function drawn(told, kept) {
  const { settings, file, page_file: page, why } = told;
  const [set, usual] = [settings.filter((one) => one.set), settings.filter((one) => !one.set)];
  const files = [file, page].filter(Boolean);
  const where = [
    t("Read from "),
    files.map((path, i) => [i ? ", " : "", el("code", {}, path)]),
    t(", variables and flags; a flag counts first."),
  ];
  const changing = settings.some(({ changeable }) => changeable);
  return el(
    "div",
    { class: "stack" },
    why ? notice(why) : files.length > 0 && el("p", { class: "small soft" }, where),
    changing && [
      heading(t("Model"), new ModelForm(told, kept).element),
      heading(t("Sources and budgets"), usualForm(settings, kept)),
    ],
    part(t("Set here"), set, t("Nothing was set: everything is as it comes."), kept),
    part(t("As it comes"), usual, ""),
  );
}

/** What holds for a question that says nothing else. */
function usualForm(settings, kept) {
  const of = Object.fromEntries(settings.map((one) => [one.name, one]));
  const controls = {
    source: input({ type: "text", value: of.source.value, spellcheck: false, autocomplete: "off" }),
    tavily_key: input({ type: "password", autocomplete: "new-password" }),
    effort: choices(t("Effort"), EFFORTS, of.effort.value),
  };
  for (const [name, , step] of NUMBERS) {
    controls[name] = input({ type: "number", min: 0, step, value: of[name].value });
  }
  for (const [name, control] of Object.entries(controls)) {
    const boxes = name === "effort" ? control.querySelectorAll("input") : [control];
    for (const box of boxes) box.disabled = !of[name].changeable;
  }
  const failed = el("div");
  const keep = button(t("Keep"), null, { kind: "primary", type: "submit" });
  const submit = async (event) => {
    event.preventDefault();
    const values = {};
    for (const [name, control] of Object.entries(controls)) {
      const value = typeof control.value === "function" ? control.value() : control.value.trim();
      const same = value === of[name].value || (name === "tavily_key" && !value);
      if (same || !of[name].changeable) continue;
      values[name] = NUMBERS.some(([each]) => each === name) ? number(value) : value || null;
    }
    const told = await attempt(failed, keep, () => patch("/api/settings", { values }));
    if (told) kept(told);
  };
  const hint = t("Separated by commas: python, web, arxiv, wikipedia, searxng:URL, a folder and more.");
  const key = of.tavily_key.value ? t("A key is kept and is not shown. Left empty, it stays.") : "";
  return el(
    "form",
    { class: "card stack", "aria-label": t("Sources and budgets"), on: { submit } },
    field(t("Sources"), controls.source, [hint, from(of.source)].filter(Boolean).join(" ")),
    field(t("Tavily key"), controls.tavily_key, key),
    el("div", { class: "stack tight" }, el("p", { class: "legend", "aria-hidden": "true" }, t("Effort")), el("div", {}, controls.effort)),
    el("div", { class: "limits" }, NUMBERS.map(
      ([name, label]) => field(label, controls[name], from(of[name])),
    )),
    el("p", { class: "small soft" }, t("Left empty, the effort says it; 0: no limit.")),
    failed,
    el("div", {}, keep),
  );
}

const number = (value) => (value === "" ? null : Number(value));

function heading(title, ...children) {
  const shown = el("h2", { id: fresh("part") }, title);
  return el("section", { class: "part", "aria-labelledby": shown.id }, shown, children);
}

function part(title, settings, none, kept = null) {
  const rows = settings.map((one) => row(one, kept));
  if (!rows.length && !none) return null;
  return heading(title, rows.length ? el("dl", { class: "settings" }, rows)
    : el("p", { class: "soft" }, none));
}

function row({ name, value, origin, set, meaning, variable, asked, kept: here, changeable }, kept) {
  const shown = set && origin && el("p", { class: "small" }, t("From "), el("code", {}, origin));
  const how = el("p", { class: "small soft" }, t("Variable "), el("code", {}, variable));
  const failed = el("div");
  const back = here && changeable && button(t("Take it back"), async () => {
    const told = await attempt(
      failed, back, () => patch("/api/settings", { values: { [name]: null } }),
    );
    if (told) kept(told);
  }, { kind: "plain small", "aria-label": t("Take back {0}", name) });
  return el(
    "div",
    { class: "setting" },
    el("dt", {}, el("code", {}, name), asked && badge(t("beside each question"))),
    el("dd", { class: "setting-value", dir: "auto" }, value || t("not set")),
    el(
      "dd",
      { class: "small soft" },
      worded(meaning.charAt(0).toUpperCase() + meaning.slice(1).replace(/\.$/, "")),
      ".",
    ),
    el("dd", {}, shown, how, back, failed),
  );
}

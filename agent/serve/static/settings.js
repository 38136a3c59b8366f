// Every setting in force: its value, where that came from, what it means, and how it is changed.
import { get } from "./api.js";
import { el, fresh } from "./dom.js";
import { badge, into, view, worded } from "./parts.js";
import { t } from "./texts.js";

export function show(_, signal) {
  const place = el("div");
  into(place, () => get("/api/settings", { signal }), drawn, signal);
  return view(
    t("Settings"),
    t("What holds on this server, and where each value comes from. The server reads them when it "
      + "starts; those with a mark can be chosen beside each question, too."),
    place,
  );
}

function drawn({ settings, file }) {
  const [set, usual] = [settings.filter((one) => one.set), settings.filter((one) => !one.set)];
  const where = file
    ? [
      t("They are read from "),
      el("code", {}, file),
      t(", variables and flags; a flag counts first."),
    ]
    : [t("No settings file is read; "), el("code", {}, "rubricem doctor"), t(" says where one is looked for.")];
  return el(
    "div",
    { class: "stack" },
    settings.some(({ origin }) => origin) && el("p", { class: "small soft" }, where),
    part(t("Set here"), set, t("Nothing was set: everything is as it comes.")),
    part(t("As it comes"), usual, ""),
  );
}

function part(title, settings, none) {
  const rows = settings.map(row);
  if (!rows.length && !none) return null;
  const found = rows.length ? el("dl", { class: "settings" }, rows) : el(
    "p",
    { class: "soft" },
    none,
  );
  const heading = el("h2", { id: fresh("part") }, title);
  return el("section", { class: "part", "aria-labelledby": heading.id }, heading, found);
}

function row({ name, value, origin, set, meaning, variable, asked }) {
  const from = set && origin && el("p", { class: "small" }, t("From "), el("code", {}, origin));
  const how = el("p", { class: "small soft" }, t("Variable "), el("code", {}, variable));
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
    el("dd", {}, from, how),
  );
}

// The components that views share.
import { ApiError } from "./api.js";
import { classes, el, fresh, replace } from "./dom.js";
import { capital, webAddress } from "./format.js";
import { icon } from "./icons.js";
import { t } from "./texts.js";

/** A view's frame: its heading gets the focus after a change of view. */
export function view(title, lead, ...children) {
  const head = el(
    "header",
    { class: "view-head" },
    el("h1", { tabindex: "-1" }, title),
    lead && el("p", { class: "lead" }, lead),
  );
  return el("div", { class: "view" }, head, children);
}

export function button(label, press, { kind = "", drawn = "", ...rest } = {}) {
  return el(
    "button",
    { type: "button", class: classes("button", kind), on: { click: press }, ...rest },
    drawn && icon(drawn),
    label,
  );
}

/** A labelled control; `hint` is described by it. */
export function field(label, control, hint = "") {
  const id = fresh("field");
  control.id = id;
  const described = hint && el("p", { class: "small soft", id: `${id}-hint` }, hint);
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return el("div", { class: "field" }, el("label", { for: id }, label), control, described);
}

export const textarea = (properties, text = "") => el(
  "textarea",
  { class: "input", ...properties },
  text,
);

export const input = (properties) => el("input", { class: "input", ...properties });

export function select(options, chosen, properties = {}) {
  const shown = options.map(
    ([value, label]) => el("option", { value, selected: value === chosen }, label)
  );
  return el("select", { class: "input", ...properties }, shown);
}

export function toggle(label, checked, change = () => {}) {
  const box = el(
    "input",
    { type: "checkbox", role: "switch", checked, on: { change: () => change(box) } },
  );
  return Object.assign(el("label", { class: "switch" }, box, el("span", {}, label)), { box });
}

/** A choice of one among a few, as segments; `options` are [value, label, icon?]. */
export function choices(legend, options, chosen, change = () => {}) {
  const name = fresh("choice");
  const radios = options.map(([value, label, drawn]) => {
    const radio = el(
      "input",
      {
        type: "radio",
        name,
        value,
        checked: value === chosen,
        on: { change: () => change(value) },
      },
    );
    return el(
      "label",
      { title: drawn ? label : null },
      radio,
      drawn ? [icon(drawn), el("span", { class: "unseen" }, label)] : label,
    );
  });
  const group = el("div", { class: "choices", role: "radiogroup", "aria-label": legend }, radios);
  return Object.assign(group, { value: () => group.querySelector(":checked")?.value });
}

/** A sentence in which what stands in back-ticks is shown as what one would type. */
export const worded = (sentence) => sentence.split("`").map(
  (part, i) => (i % 2 ? el("code", {}, part) : part)
);

export function notice(sentence, remedy = "", kind = "warn") {
  const words = [
    el("p", {}, worded(sentence)),
    remedy && el("p", { class: "small" }, worded(remedy)),
  ];
  return el(
    "div",
    { class: classes("notice", kind), role: kind === "bad" ? "alert" : null },
    icon(kind === "good" ? "check" : "warn"),
    words,
  );
}

/** What went wrong in the server's own sentences; another error is the page's and is raised. */
export function failure(error) {
  if (!(error instanceof ApiError)) throw error;
  return notice(error.message, error.remedy, "bad");
}

export const waiting = (sentence = t("Loading …")) => el("p", { class: "waiting" }, sentence);

export function empty(title, sentence, action = null) {
  return el("div", { class: "empty" }, el("h2", {}, title), el("p", {}, worded(sentence)), action);
}

/** Fill `place` with what `load` brings, or with why it did not. */
export async function into(place, load, draw, signal) {
  replace(place, waiting());
  try {
    const found = await load();
    if (!signal?.aborted) replace(place, draw(found));
  } catch (error) {
    if (error.name !== "AbortError" && !signal?.aborted) replace(place, failure(error));
  }
}

/** Run a changing request: the button waits, and what fails is said below in `place`. */
export async function attempt(place, control, change) {
  control.disabled = true;
  replace(place);
  try {
    return await change();
  } catch (error) {
    replace(place, failure(error));
    return undefined;
  } finally {
    control.disabled = false;
  }
}

/** Ask whether to go on with something that cannot be undone. */
export function confirmed(title, sentence, label) {
  const { promise, resolve } = Promise.withResolvers();
  const heading = el("h2", { id: fresh("title") }, title);
  const dialog = el(
    "dialog",
    { "aria-labelledby": heading.id, on: { close: () => finish(dialog.returnValue === "yes") } },
    heading,
    el("p", {}, sentence),
  );
  const finish = (said) => {
    dialog.remove();
    resolve(said);
  };
  dialog.append(el(
    "div",
    { class: "row" },
    button(t("Cancel"), () => dialog.close("")),
    button(label, () => dialog.close("yes"), { kind: "danger" }),
  ));
  document.body.append(dialog);
  dialog.showModal();
  return promise;
}

const STATES = {
  waiting: [t("Waiting"), ""],
  loading: [t("Getting ready"), "live"],
  running: [t("Researching"), "live"],
  asking: [t("Waits for you"), "warn"],
  finished: [t("Finished"), "good"],
  partial: [t("Partial"), "warn"],
  no_evidence: [t("No evidence"), "warn"],
  failed: [t("Failed"), "bad"],
  unfinished: [t("Interrupted"), "warn"],
  elsewhere: [t("Worked on elsewhere"), "live"],
  unreadable: [t("Unreadable"), "bad"],
};

/** Words and colour of a run's state, or of its status once it ended. */
export function stateOf(run) {
  const key = run.state === "ended" ? run.status : run.state;
  return STATES[key] ?? [capital(key || "ended"), ""];
}

/** The runs of a list by their conversations, each with its newest run first. */
export function grouped(runs) {
  const found = new Map();
  for (const run of runs) {
    const key = run.thread ?? run.run;
    found.set(key, [...(found.get(key) ?? []), run]);
  }
  return [...found.values()];
}

const several = (run, threads) => threads[run.thread]?.runs.length > 1;

/** Where a conversation is read: one of a single question is its run. */
export const addressOf = (run, threads) => (several(run, threads)
  ? `#/conversations/${encodeURIComponent(run.thread)}` : `#/run/${encodeURIComponent(run.run)}`);

export function titleOf(run, threads) {
  const thread = threads[run.thread];
  if (several(run, threads)) return thread.title;
  return (thread?.named && thread.title) || run.title || run.question;
}

export function badge(label, kind = "", ...more) {
  return el("span", { class: classes("badge", kind) }, label, more);
}

export const stateBadge = (run) => badge(...stateOf(run));

export const dot = (run) => el(
  "span",
  { class: classes("dot", stateOf(run)[1]), "aria-hidden": "true" },
);

/** A title, linked where its address is one of the web. */
export function outward(title, location) {
  const address = webAddress(location);
  return address ? el(
    "a",
    { href: address, target: "_blank", rel: "noopener noreferrer nofollow" },
    title || address,
  ) : el("span", {}, title || location);
}

/** A term and its value for a list of facts. */
export const fact = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));

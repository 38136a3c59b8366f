// A question, how it is to be answered, and what it may spend.
import { call, get, post } from "./api.js";
import { el, replace } from "./dom.js";
import { number } from "./format.js";
import { attempt, button, choices, failure, field, input, textarea, toggle } from "./parts.js";

const FORMATS = [["long", "Report"], ["short", "Short answer"], ["exact", "Exact value"]];
const SOURCES = {
  python: "Python documentation",
  web: "Web",
  scholar: "Papers",
  auto: "Automatic",
};
const DRAFT = "draft";
const LIMITS = [
  ["tool_calls", "Searches", { min: 1, step: 1 }],
  ["max_seconds", "Seconds", { min: 1, step: 1 }],
  ["max_total_tokens", "Tokens", { min: 1, step: 1 }],
  ["max_cost", "US dollars", { min: 0, step: "any" }],
];

export function show() {
  const place = el("div", { class: "view ask" });
  const title = el("h1", { tabindex: "-1" }, "What would you like to know?");
  const lead = el(
    "p",
    { class: "lead" },
    "A plan with its own rubric, research in the sources you choose, and a report in which every " +
      "citation was checked against the passage it stands on.",
  );
  replace(place, el("header", { class: "view-head" }, title, lead), composer());
  return place;
}

/** The form of a new question; in a thread it is the next of that thread. */
export function composer(thread = null) {
  const question = textarea({
    rows: 3,
    required: true,
    placeholder: thread ? "Ask what the report leaves open" : "Ask a question",
    "aria-label": thread ? "Follow-up question" : "Question",
  });
  if (!thread) keepDraft(question);
  const options = fields(thread);
  const failed = el("div", { class: "failed" });
  const send = button(
    thread ? "Ask in this thread" : "Ask",
    null,
    { kind: "primary", type: "submit", drawn: "send" },
  );
  const submit = async (event) => {
    event.preventDefault();
    const started = await attempt(
      failed,
      send,
      () => post("/api/runs", { ...asked(question.value, options), ...(thread && { thread }) }),
    );
    if (!started) return;
    sessionStorage.removeItem(DRAFT);
    location.hash = `#/run/${encodeURIComponent(started.run)}`;
  };
  const sendByKey = (event) => {
    const held = event.ctrlKey || event.metaKey;
    if (event.key === "Enter" && held) event.currentTarget.requestSubmit();
  };
  const bar = el("div", { class: "row apart composer-bar" }, options.format, send);
  const card = el("div", { class: "card composer" }, question, bar);
  return el(
    "form",
    { class: "stack", on: { submit, keydown: sendByKey } },
    card,
    failed,
    options.shown,
  );
}

function keepDraft(question) {
  question.value = sessionStorage.getItem(DRAFT) ?? "";
  question.addEventListener("input", () => sessionStorage.setItem(DRAFT, question.value));
}

function fields(thread) {
  const options = { format: choices("Form of the answer", FORMATS, "long"), sources: new Map() };
  options.approve = toggle("Show me the plan before it is followed", false);
  options.clarify = toggle("The model may ask me one question first", false);
  options.limits = LIMITS.map(
    ([name, label, rules]) => [
      name,
      input({ type: "number", inputmode: "decimal", ...rules }),
      label,
    ]
  );
  const place = el("div", { class: "chips" });
  const failed = el("div");
  offered(options, place, failed);
  const sourced = el(
    "fieldset",
    { class: "stack tight" },
    el("legend", { class: "legend" }, "Sources"),
    place,
    failed,
  );
  const limits = el(
    "details",
    { class: "fold" },
    el("summary", {}, "Limits"),
    limitFields(options.limits),
  );
  const switches = el("div", { class: "switches" }, options.approve, options.clarify);
  const inner = [sourced, switches, limits];
  options.shown = thread ? el(
    "details",
    { class: "fold options" },
    el("summary", {}, "Options"),
    el("div", { class: "stack" }, inner),
  ) : el("div", { class: "options stack" }, inner);
  return options;
}

function limitFields(limits) {
  const grid = el(
    "div",
    { class: "limits" },
    limits.map(([, control, label]) => field(label, control)),
  );
  const hint = el(
    "p",
    { class: "small soft" },
    "Left empty, the server's own limits hold. " +
      "A run that meets one ends with a report of what there is.",
  );
  return [grid, hint];
}

/** What the server offers, and what it does where nothing else is said. */
async function offered(options, place, failed) {
  try {
    const { sources, source, defaults } = await get("/api/status");
    for (const name of sources) {
      place.append(chip(options, name, sourceName(name), source.includes(name)));
    }
    options.usual = chosen(options).join();
    for (const [name, control] of options.limits) {
      control.placeholder = defaults[name] ? number(defaults[name]) : "none";
    }
    options.format.querySelector(`[value="${defaults.format}"]`).checked = true;
    options.approve.box.checked = defaults.approve_plan;
    options.clarify.box.checked = defaults.clarify;
    place.append(upload(options, place, failed));
  } catch (error) {
    replace(failed, failure(error));
  }
}

const sourceName = (name) => SOURCES[name] ?? name.replace(/^upload:/, "");

const chosen = ({ sources }) => [...sources].filter(([, box]) => box.checked).map(([name]) => name);

function chip(options, value, label, checked = false) {
  const box = el("input", { type: "checkbox", value, checked });
  options.sources.set(value, box);
  return el("label", { class: "chip" }, box, label);
}

/** A button that uploads documents and adds them as a chosen source. */
function upload(options, place, failed) {
  const files = el(
    "input",
    {
      type: "file",
      multiple: true,
      class: "unseen",
      "aria-label": "Documents to search",
      accept: ".pdf,.md,.txt,.html,.docx,.rst",
    },
  );
  const press = button("Add documents", () => files.click(), { kind: "plain small", drawn: "ask" });
  files.tabIndex = -1;
  files.addEventListener("change", async () => {
    if (!files.files.length) return;
    const added = await attempt(failed, press, () => sent(files.files));
    files.value = "";
    if (!added) return;
    place.insertBefore(chip(options, added.source, added.name ?? added.source, true), wrapped);
    press.focus();
  });
  const wrapped = el("span", {}, press, files);
  return wrapped;
}

function sent(files) {
  const body = new FormData();
  const stamp = new Date().toISOString().slice(0, 19).replaceAll(/[T:]/g, "-");
  body.append("folder", `documents-${stamp}`);
  for (const file of files) body.append("documents", file, file.name);
  return call("POST", "/api/uploads", body);
}

/** The body of the request; what was left as it is, is left to the server. */
function asked(question, options) {
  const body = { question: question.trim(), format: options.format.value() };
  body.approve_plan = options.approve.box.checked;
  body.clarify = options.clarify.box.checked;
  const source = chosen(options);
  if (source.length && source.join() !== options.usual) body.source = source;
  for (const [name, control] of options.limits) {
    if (control.value !== "") body[name] = Number(control.value);
  }
  return body;
}

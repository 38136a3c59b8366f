// A question, how it is to be answered, and what it may spend.
import { get, post } from "./api.js";
import { el, replace } from "./dom.js";
import { between, counted, duration, money, number } from "./format.js";
import {
  attempt, button, choices, failure, field, input, select, textarea, toggle,
} from "./parts.js";
import { SourcePicker } from "./sources.js";
import { t } from "./texts.js";

const FORMATS = [["long", t("Report")], ["short", t("Short answer")], ["exact", t("Exact value")]];
const EFFORTS = [["quick", t("Quick")], ["standard", t("Standard")], ["deep", t("Deep")]];
const VERIFY = [["off", t("Do not check")], ["mark", t("Mark doubts")], ["repair", t("Repair")]];
const MEMORY = [["off", t("Off")], ["read-only", t("Use it")], ["on", t("Use it and learn")]];
const DRAFT = "draft";
const FINE = "(pointer: fine)";
const LIMITS = [
  ["tool_calls", t("Searches"), { min: 1, step: 1 }],
  ["max_seconds", t("Seconds"), { min: 1, step: 1 }],
  ["max_total_tokens", t("Tokens"), { min: 1, step: 1 }],
  ["max_cost", t("US dollars"), { min: 0, step: "any" }],
];

export function show() {
  const asked = new URLSearchParams(location.search || location.hash.split("?")[1]).get("q");
  const place = el("div", { class: "view ask" });
  const title = el("h1", { tabindex: "-1" }, t("What would you like to know?"));
  const lead = el(
    "p",
    { class: "lead" },
    t("A plan with its own rubric, research in the sources you choose, and a report in which every " +
      "citation was checked against the passage it stands on."),
  );
  const form = composer();
  const box = form.querySelector("textarea");
  if (asked) box.value = asked;
  const examples = el("div", { class: "row examples", "aria-label": t("Examples"), role: "group" });
  const take = (text) => {
    box.value = text;
    box.dispatchEvent(new Event("input"));
    box.focus();
  };
  const empty = () => (examples.hidden = box.value.trim() !== "");
  box.addEventListener("input", empty);
  empty();
  get("/api/status").then(({ source, ready }) => {
    const shown = (text) => button(text, () => take(text), { kind: "small example" });
    replace(examples, examplesFor(source).map(shown));
    // The limits, sources and examples are those of the model that was chosen.
    if (!ready) choosing(form, () => replace(place, [...show().childNodes]));
  }).catch(() => {}); // the form itself says that the server is away
  form.querySelector(".composer").after(examples);
  replace(place, el("header", { class: "view-head" }, title, lead), form);
  return place;
}

/** Before the first question: nobody has chosen a model, and the usual one is not here yet. */
async function choosing(form, chosen) {
  const told = await get("/api/settings").catch(() => ({ why: "" }));
  if (!told.settings || told.why) return;
  const { ModelForm } = await import("./model.js");
  const place = el("section", { class: "first stack", "aria-labelledby": "first-title" });
  const view = form.parentNode;
  const done = () => {
    chosen();
    view.querySelector("textarea").focus();
    dispatchEvent(new Event("settings-changed"));
  };
  form.hidden = true;
  const lead = t("It can be another one at any time, under Settings. Nothing is sent to a server that you do not choose.");
  replace(
    place,
    el("h2", { id: "first-title" }, t("First, which model answers?")),
    el("p", { class: "soft" }, lead),
    new ModelForm(told, done, true).element,
  );
  form.before(place);
}

/** Three questions that the usual sources can answer. */
function examplesFor([source = ""]) {
  if (source === "python") {
    return [
      t("How does asyncio.TaskGroup differ from asyncio.gather?"),
      t("When does functools.lru_cache forget an entry?"),
      t("How do I read a CSV file with a header?"),
    ];
  }
  if (/^(web|auto|scholar|tavily|wikipedia|searxng)/.test(source)) {
    return [
      t("How well do heat pumps work below freezing?"),
      t("What speaks for SQLite, and what for PostgreSQL, in a small web service?"),
      t("Which treatments of migraine have the best evidence?"),
    ];
  }
  return [
    t("What are the main findings of these documents?"),
    t("Which dates and deadlines do they name?"),
    t("Where do they contradict one another?"),
  ];
}

/** The form of a new question; in a thread, whose name `thread` brings, it is the next of that.
 *
 * `began` is told the run that was asked for; without it the page goes there.
 */
export function composer(thread = null, began = open) {
  const question = textarea({
    rows: 3,
    required: true,
    dir: "auto",
    placeholder: thread ? t("Ask what the report leaves open") : t("Ask a question"),
    "aria-label": thread ? t("Follow-up question") : t("Question"),
  });
  if (!thread) keepDraft(question);
  const options = fields(thread);
  const failed = el("div", { class: "failed" });
  const send = button(
    thread ? t("Ask in this conversation") : t("Ask"),
    null,
    { kind: "primary", type: "submit", drawn: "send" },
  );
  const submit = async (event) => {
    event.preventDefault();
    const started = await attempt(
      failed,
      send,
      async () => {
        const after = thread && { thread: await thread() };
        return post("/api/runs", { ...asked(question.value, options), ...after, attended: true });
      },
    );
    if (!started) return;
    if (!thread) sessionStorage.removeItem(DRAFT);
    question.value = "";
    began(started);
  };
  const sendByKey = (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    const held = event.ctrlKey || event.metaKey;
    // Where fingers type there is no Shift to hold, and Enter breaks the line.
    const typed = event.target === question && !event.shiftKey && matchMedia(FINE).matches;
    if (!held && !typed) return;
    event.preventDefault();
    event.currentTarget.requestSubmit();
  };
  const forms = el("div", { class: "row" }, options.format, options.effort);
  const bar = el("div", { class: "row apart composer-bar" }, forms, send);
  const card = el("div", { class: "card composer" }, question, bar, options.cost);
  return el(
    "form",
    { class: "stack", on: { submit, keydown: sendByKey, change: () => showCost(options) } },
    card,
    failed,
    options.shown,
  );
}

function open({ run }) {
  location.hash = `#/run/${encodeURIComponent(run)}`;
}

function keepDraft(question) {
  question.value = sessionStorage.getItem(DRAFT) ?? "";
  question.addEventListener("input", () => sessionStorage.setItem(DRAFT, question.value));
}

function fields(thread) {
  const options = {
    format: choices(t("Form of the answer"), FORMATS, "long"),
    effort: choices(t("Effort"), EFFORTS, "standard", () => showLimits(options)),
    cost: el("p", { class: "small soft cost", "aria-live": "polite", hidden: true }),
    verify: choices(t("Checking of the citations"), VERIFY, "mark"),
    sources: new SourcePicker(),
    model: select([], null),
    memory: choices(t("Memory"), MEMORY, "read-only"),
    approve: toggle(t("Show me the plan before it is followed"), false),
    clarify: toggle(t("The model may ask me one question first"), false),
    limits: LIMITS.map(
      ([name, label, rules]) => [
        name,
        input({ type: "number", inputmode: "decimal", ...rules }),
        label,
      ]
    ),
  };
  options.effort.hidden = true; // until it is known that the model can lead
  offered(options);
  const limits = el(
    "details",
    { class: "fold" },
    el("summary", {}, t("Budgets")),
    limitFields(options.limits),
  );
  const switches = el("div", { class: "switches" }, options.approve, options.clarify);
  options.models = el("div", { hidden: true }, field(t("Model"), options.model));
  const inner = [
    thread && options.sources.element,
    options.models,
    titled(t("Memory"), options.memory),
    titled(t("Checking of the citations"), options.verify),
    switches,
    limits,
  ];
  const folded = el(
    "details",
    { class: "fold options" },
    el("summary", {}, t("Options")),
    el("div", { class: "stack" }, inner),
  );
  options.shown = thread ? folded
    : el("div", { class: "options stack" }, options.sources.element, folded);
  return options;
}

function titled(title, control) {
  const label = el("p", { class: "legend", "aria-hidden": "true" }, title);
  return el("div", { class: "stack tight checking" }, label, control);
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
    t("Left empty, the server's own limits hold. " +
      "A run that meets one ends with a report of what there is."),
  );
  return [grid, hint];
}

/** What the server offers, and what it does where nothing else is said. */
async function offered(options) {
  // What a person chose before the server answered is theirs.
  const touched = options.touched = new Set();
  const { format, effort, verify, memory, approve, clarify } = options;
  for (const control of [format, effort, verify, memory, approve, clarify]) {
    control.addEventListener("change", () => touched.add(control), { once: true });
  }
  try {
    const status = await get("/api/status");
    const { sources, source, models, model, defaults } = status;
    Object.assign(options, { efforts: status.efforts, usual: status.usual, priced: status.priced });
    options.effort.hidden = !("deep" in status.efforts);
    options.sources.offer(sources, source);
    replace(
      options.model,
      models.map((name, i) => el("option", { value: i ? name : "" }, name || model)),
    );
    options.models.hidden = models.length < 2;
    const preset = (control, box, value) => {
      if (!touched.has(control)) box.checked = value;
    };
    for (const name of ["format", "effort", "verify", "memory"]) {
      preset(options[name], options[name].querySelector(`[value="${defaults[name]}"]`), true);
    }
    showLimits(options);
    preset(options.approve, options.approve.box, defaults.approve_plan);
    preset(options.clarify, options.clarify.box, defaults.clarify);
  } catch (error) {
    replace(options.sources.failed, failure(error));
  }
}

/** What holds where no budget is named, by the effort. */
function showLimits(options) {
  const { limits, effort, efforts } = options;
  const usual = efforts?.[effort.value()] ?? {};
  for (const [name, control] of limits) {
    control.placeholder = usual[name] ? number(usual[name]) : t("none");
  }
  showCost(options);
}

/** What it may cost: as the latest of its kind did, and at most. */
function showCost({ limits, effort, efforts, usual = [], priced, format, model, cost }) {
  if (!efforts) return;
  const [kind, form, most] = [effort.value(), format.value(), { ...efforts[effort.value()] }];
  for (const [name, control] of limits) {
    if (control.value !== "") most[name] = Number(control.value);
  }
  const searches = (count) => counted(Math.round(count), "search", "searches");
  const tokens = (count) => counted(Math.round(count), "token");
  const calls = most.tool_calls && searches(most.tool_calls);
  const limit = [
    calls && kind === "deep" ? t("{0} in each investigation", calls) : calls,
    most.max_total_tokens && tokens(most.max_total_tokens),
    most.max_seconds && duration(most.max_seconds),
    priced && most.max_cost && money(most.max_cost),
  ].filter(Boolean).join(" · ");
  // What other models took is not known here.
  const took = !model.value && usual.find((one) => one.effort === kind && one.format === form);
  const spans = took && [
    between(took.calls, searches),
    between(took.tokens, tokens),
    between(took.seconds, duration, duration),
    took.cost && between(took.cost, money, money),
  ].filter(Boolean).join(" · ");
  cost.hidden = false;
  replace(cost, took
    ? t("{0}, as the last {1} such questions took; at most {2}", spans, took.runs, limit)
    : t("At most {0}", limit));
}

/** The body of the request; what was left as it is, is left to the server. */
function asked(question, options) {
  const body = { question: question.trim() };
  for (const name of ["format", "effort", "verify", "memory", "approve", "clarify"]) {
    const control = options[name];
    // Before the server has told its defaults, only what a person chose is known.
    if (control.hidden || !(options.efforts || options.touched.has(control))) continue;
    body[name === "approve" ? "approve_plan" : name] = control.box?.checked ?? control.value();
  }
  if (options.model.value) body.model = options.model.value;
  const source = options.sources.changed();
  if (source) body.source = source;
  for (const [name, control] of options.limits) {
    if (control.value !== "") body[name] = Number(control.value);
  }
  return body;
}

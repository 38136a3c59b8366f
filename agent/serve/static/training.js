// Collected groups of rollouts and training runs, each with its curves.
import { get, path } from "./api.js";
import { lineChart, shown } from "./chart.js";
import { classes, el, replace } from "./dom.js";
import { capital, counted, duration, number, share, when } from "./format.js";
import { badge, empty, fact, failure, into, view, waiting } from "./parts.js";
import { t } from "./texts.js";

const AGAIN = 4000;
const STAGES = ["plan", "research", "review", "answer"];

export function show([kind, name], signal) {
  if (name && kind === "collected") return one(kind, name, collected, signal);
  if (name && kind === "trained") return one(kind, name, trained, signal);
  return all(signal);
}

function all(signal) {
  const [first, second] = [el("div"), el("div")];
  into(
    first,
    () => get("/api/collected", { signal }),
    ({ collected: runs }) => rows(
      "collected",
      runs,
      t("No rollouts were collected yet"),
      t("`rubricem collect` gathers groups of scored rollouts."),
    ),
    signal,
  );
  into(
    second,
    () => get("/api/trained", { signal }),
    ({ trained: runs }) => rows(
      "trained",
      runs,
      t("Nothing was trained yet"),
      t("`rubricem train` improves a policy on what was collected."),
    ),
    signal,
  );
  return view(
    t("Training"),
    t("Groups of rollouts that were collected, and what training made of them."),
    el("section", {}, el("h2", {}, t("Collected")), first),
    el("section", { class: "part" }, el("h2", {}, t("Trained")), second),
  );
}

function rows(kind, runs, title, sentence) {
  if (!runs.length) return empty(title, sentence);
  const row = (run) => {
    const facts = Object.entries(run).filter(
      ([key, value]) => key !== "name" && (
        typeof value === "number" || typeof value === "string"
      ) && value !== ""
    );
    if (run.problem) {
      const why = el("p", { class: "wrong" }, run.problem);
      return el("li", { class: "item" }, el("strong", {}, run.name), why);
    }
    return el(
      "li",
      {},
      el(
        "a",
        { class: "item", href: `#/training/${kind}/${encodeURIComponent(run.name)}` },
        el("strong", {}, run.name),
        run.running && badge(t("Running"), "live"),
        el("span", { class: "row" }, facts.map(([key, value]) => el("span", {}, said(key, value)))),
      ),
    );
  };
  return el("ul", { class: "list" }, runs.map(row));
}

function said(key, value) {
  if (key.endsWith("_at")) return when(value);
  if (key === "seconds") return duration(value);
  return typeof value === "number" ? counted(value, key.replace(/s$/, ""), key) : String(value);
}

function one(kind, name, draw, signal) {
  const place = el(
    "div",
    { class: "view broad" },
    el("h1", { tabindex: "-1", class: "unseen" }, name),
    waiting(),
  );
  const head = el(
    "header",
    { class: "view-head" },
    el("p", { class: "kicker" }, el("a", { href: "#/training" }, t("Training"))),
    el("h1", { tabindex: "-1" }, name),
  );
  const body = el("div", { class: "stack" });
  const drawn = (found) => replace(place, head, replace(body, draw(found)));
  const failed = (error) => replace(place, head, failure(error));
  followed(() => get(path(kind, name), { signal }), drawn, failed, signal);
  return place;
}

/** Draw what is there now, and anew whenever it has changed, while somebody looks. */
async function followed(load, drawn, failed, signal) {
  let before = "";
  while (!signal.aborted) {
    try {
      const found = document.hidden && before ? null : await load();
      const now = JSON.stringify(found);
      if (signal.aborted) return;
      if (found && now !== before) {
        const [left, top] = [scrollX, scrollY];
        drawn(found);
        if (before) scrollTo(left, top);
        before = now;
      }
    } catch (error) {
      if (signal.aborted) return;
      // What is shown stays; a server that is away for a moment comes back.
      if (!before) return failed(error);
    }
    await new Promise((done) => setTimeout(done, AGAIN));
  }
}

/** A chart, or nothing where no step has a value. */
function chart(title, yName, series, { x = "step", ...bounds } = {}) {
  const known = series.filter(({ points }) => points.some(([, y]) => y != null));
  return known.length ? lineChart({ title, x, y: yName, series: known, ...bounds }) : null;
}

const over = (steps, name, value) => ({
  name,
  points: steps.map((step) => [step.step, value(step) ?? null]),
});

function collected(run) {
  const { steps } = run;
  if (!run.grid.length) {
    return [
      el("dl", { class: "facts" }, state(run)),
      empty(t("No group is judged yet"), t("They appear here one by one, as they are.")),
    ];
  }
  const facts = [
    [t("Groups"), run.groups],
    [t("Rollouts"), run.rollouts],
  ].filter(([, value]) => value != null);
  const failures = Object.values(run.failures ?? {}).reduce((sum, count) => sum + count, 0);
  return [
    el(
      "dl",
      { class: "facts" },
      state(run),
      facts.map(([name, value]) => fact(name, number(value))),
      fact(t("Time"), duration(run.seconds)),
      fact(t("Failed"), number(failures)),
      fact(t("Unscored stages"), percent(run.unscored_share)),
      fact(t("Malformed"), percent(run.malformed_share)),
      fact(t("Reflections"), number(run.reflections)),
      fact(t("Accepted"), number(run.accepted)),
    ),
    groups(run.grid),
    charts(chart(
      t("Score of each stage"),
      t("mean score"),
      STAGES.map((stage) => over(steps, capital(stage), (step) => step.scores?.[stage])),
      { low: 0, high: 1 },
    ),
    chart(
      t("What went wrong"),
      "share",
      [
        over(steps, t("Unscored stages"), (step) => step.unscored_share),
        over(steps, t("Malformed rollouts"), (step) => step.malformed_share),
      ],
      { low: 0 },
    ),
    chart(
      t("Searches"),
      t("mean of a rollout"),
      [over(steps, t("Searches"), (step) => step.tool_calls)],
    ),
    chart(
      t("Tokens written"),
      t("mean of a rollout"),
      [over(steps, t("Tokens"), (step) => step.tokens_written)],
    ),
    chart(
      t("Criteria of the rubrics"),
      t("changed in the step"),
      [
        over(steps, t("Added"), (step) => step.criteria_added),
        over(steps, t("Retired"), (step) => step.criteria_retired),
      ],
    )),
  ];
}

/** Whether a process of the server's machine works on it now. */
const state = ({ running }) => fact(t("State"), running ? t("Running") : t("Not running"));

const charts = (...drawn) => el("div", { class: "charts" }, drawn);

/** Every group by its step: the mean score of its answers, or that there is none. */
function groups(grid) {
  const rows = new Map();
  for (const group of grid) rows.set(group.step, [...(rows.get(group.step) ?? []), group]);
  const heading = el("h2", { id: "groups-title" }, t("Groups"));
  const told = el(
    "p",
    { class: "small soft" },
    t("By step, the mean score of each group's answers; hatched where nothing is scored, dashed "
      + "where the step goes on."),
  );
  const row = ([step, found]) => el(
    "tr",
    {},
    el("th", { scope: "row" }, t("step {0}", step)),
    found.map((group) => el("td", {}, groupCell(group))),
  );
  const table = el("table", { class: "groups" }, el("tbody", {}, [...rows].map(row)));
  const region = {
    class: "table-wrap",
    tabindex: "0",
    role: "region",
    "aria-label": t("All groups"),
  };
  return el(
    "section",
    { class: "stack tight", "aria-labelledby": heading.id },
    heading,
    told,
    el("div", region, table),
  );
}

function groupCell({ question, scores, rollouts, failed, finished }) {
  const answer = scores.answer;
  const stages = STAGES.map(
    (stage) => `${stage} ${scores[stage] == null ? t("unscored") : share(scores[stage])}`
  );
  const said = [
    question,
    `${counted(rollouts, "rollout")}${failed ? t(", {0} failed", failed) : ""}`,
    stages.join(", "),
    finished ? "" : t("its step goes on"),
  ].filter(Boolean).join("\n");
  const tenths = Math.round(10 * Math.max(0, Math.min(1, answer)));
  const kind = answer == null ? "unscored" : `part-${tenths}`;
  return el(
    "span",
    { class: classes("cell", kind, !finished && "running"), title: said },
    el("span", { "aria-hidden": "true" }, answer == null ? "–" : share(answer)),
    el("span", { class: "unseen" }, said),
  );
}

const percent = (value) => (value == null ? "–" : `${shown(100 * value)} %`);

/** Every number that a training run wrote for its steps, the most telling first. */
function trained({ steps, unit, running, ...rest }) {
  const first = ["loss", "kl", "entropy", "grad_norm", "rate"];
  const names = [
    ...new Set(
      steps.flatMap(
        (step) => Object.keys(step).filter((key) => key !== "step" && typeof step[key] === "number")
      )
    ),
  ];
  names.sort((a, b) => (first.indexOf(a) + 1 || 99) - (first.indexOf(b) + 1 || 99));
  const facts = Object.entries(rest).filter(
    ([key, value]) => key !== "name" && ["number", "string"].includes(typeof value) && value !== ""
  );
  if (!steps.length) {
    return [
      el("dl", { class: "facts" }, state({ running })),
      empty(t("No step was finished"), t("The curves begin with the first finished step.")),
    ];
  }
  return [
    el(
      "dl",
      { class: "facts" },
      state({ running }),
      fact(unit === "round" ? t("Rounds") : t("Steps"), number(steps.length)),
      facts.map(
        ([key, value]) => fact(
          capital(key),
          key.endsWith("_at") ? when(value) : typeof value === "number" ? shown(value) : value,
        )
      ),
    ),
    charts(names.map(
      (name) => chart(
        metric(name),
        metric(name),
        [over(steps, metric(name), (step) => step[name])],
        { x: unit },
      )
    )),
  ];
}

const metric = (name) => (name === "kl" ? t("KL divergence") : capital(name));

// What the judge gave a run, stage by stage and criterion by criterion; two runs side by side.
import { get, path, post } from "./api.js";
import { el, replace } from "./dom.js";
import { capital, share, when } from "./format.js";
import {
  attempt, button, empty, failure, field, notice, select, stateOf, view, waiting,
} from "./parts.js";
import { t } from "./texts.js";

const STAGES = ["plan", "research", "review", "answer"];
const ASK_AGAIN = 1500;
const CHOICE = 100;

export function show([first = "", second = ""], signal) {
  const pickers = el("div", { class: "pickers" });
  const place = el("div", { class: second ? "side-by-side" : "" });
  const whole = view(
    t("Judge"),
    t("The rubrics of each stage, what the judge gave for every criterion, and why. " +
      "Choose a second run to compare."),
    pickers,
    place,
  );
  whole.classList.add("wide");
  load(pickers, place, [first, second], signal);
  return whole;
}

async function load(pickers, place, chosen, signal) {
  replace(place, waiting());
  try {
    const { runs } = await get(`/api/runs?limit=${CHOICE}`, { signal });
    const ended = runs.filter((run) => run.state === "ended" || chosen.includes(run.run));
    if (!ended.length) return replace(place, nothing());
    replace(
      pickers,
      picker(t("Run"), ended, chosen, 0),
      chosen[0] && picker(t("Compared with"), ended, chosen, 1),
    );
    replace(
      place,
      chosen[0]
        ? chosen.filter(Boolean).map((run) => column(run, runs, signal))
        : empty(t("Choose a run"), t("Its scores appear here.")),
    );
  } catch (error) {
    if (error.name !== "AbortError") replace(place, failure(error));
  }
}

const nothing = () =>
  empty(
    t("Nothing to judge yet"),
    t("Runs that ended can be judged here."),
    el("a", { class: "button primary", href: "#/" }, t("Ask a question")),
  );

function picker(label, runs, chosen, place) {
  const options = [
    ["", place ? t("no other run") : t("choose a run")],
    ...runs.map((run) => [run.run, `${run.question} · ${when(run.started_at)}`]),
  ];
  const known = !chosen[place] || runs.some((run) => run.run === chosen[place]);
  if (!known) options.push([chosen[place], chosen[place]]);
  const control = select(options, chosen[place]);
  control.addEventListener("change", () => {
    const next = place ? [chosen[0], control.value] : [control.value, chosen[1]];
    location.hash = `#/judge/${next.filter(Boolean).map(encodeURIComponent).join("/")}`;
  });
  return field(label, control);
}

/** The scores of one run, or the way to have it judged. */
function column(name, runs, signal) {
  const run = runs.find((each) => each.run === name);
  const body = el("div", { class: "stack" }, waiting());
  const head = el(
    "div",
    { class: "stack tight" },
    el(
      "h2",
      { dir: "auto" },
      el("a", { href: `#/run/${encodeURIComponent(name)}` }, run?.question ?? name),
    ),
    run && el(
      "p",
      { class: "soft small" },
      [stateOf(run)[0], when(run.started_at), run.model].filter(Boolean).join(" · "),
    ),
  );
  fetchScores(name, body, signal);
  return el("section", { class: "judged stack", "aria-label": run?.question ?? name }, head, body);
}

/** The scores of one run on its own page. */
export function scoresOf(name, signal) {
  const body = el("div", { class: "stack judged" }, waiting());
  fetchScores(name, body, signal);
  const compare = `#/judge/${encodeURIComponent(name)}`;
  return [body, el("p", { class: "small" }, el("a", { href: compare }, t("Compare two runs")))];
}

async function fetchScores(name, body, signal) {
  try {
    const found = await get(path("runs", name, "judgement"), { signal });
    if (found?.stages?.length) return replace(body, scores(found));
    offer(name, body, signal);
  } catch (error) {
    if (error.status === 404) offer(name, body, signal);
    else if (error.name !== "AbortError") replace(body, failure(error));
  }
}

function offer(name, body, signal, failed = el("div")) {
  const press = button(t("Judge this run"), async () => {
    const begun = await attempt(
      failed,
      press,
      async () => (await post(path("runs", name, "judge"))) ?? true,
    );
    if (begun) wait(name, body, signal);
  }, { kind: "primary", drawn: "judge" });
  replace(
    body,
    empty(
      t("Not judged yet"),
      t("The judge writes rubrics for every stage and scores the run by them."),
      press,
    ),
    failed,
  );
}

async function wait(name, body, signal) {
  const reading = t("The judge is reading the run …");
  replace(body, el("p", { class: "waiting", role: "status" }, reading));
  while (!signal.aborted) {
    try {
      const { state, error, remedy } = await get(path("runs", name, "judge"), { signal });
      if (state === "failed") {
        return offer(name, body, signal, el("div", {}, notice(error, remedy, "bad")));
      }
      if (state !== "running" && state !== "waiting") return fetchScores(name, body, signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      return replace(body, failure(error));
    }
    await new Promise((done) => setTimeout(done, ASK_AGAIN));
  }
}

function scores({ stages, judge, rubric_version, note }) {
  const order = [...stages].sort((a, b) => STAGES.indexOf(a.stage) - STAGES.indexOf(b.stage));
  return [
    note && notice(note),
    el(
      "p",
      { class: "soft small" },
      [
        judge && t("Judged by {0}", judge),
        rubric_version && t("rubrics {0}", rubric_version),
      ].filter(Boolean).join(" · "),
    ),
    order.map(stageCard),
  ];
}

function stageCard({ stage, score, unscored_reason, justification, verdicts = [] }) {
  const reason = score == null ? unscored_reason : justification;
  const head = el(
    "div",
    { class: "row apart" },
    el("h3", {}, capital(stage)),
    el("span", { class: "score-number" }, score == null ? t("unscored") : share(score)),
  );
  return el(
    "section",
    { class: "card stack tight", "aria-label": capital(stage) },
    head,
    score != null && bar(score),
    reason && el("p", { class: "small soft", dir: "auto" }, reason),
    verdicts.length > 0 && el("ul", { class: "criteria" }, verdicts.map(criterionRow)),
  );
}

function bar(score) {
  return el(
    "meter",
    {
      class: "meter",
      min: "0",
      max: "1",
      value: score,
      "aria-label": t("score {0} of 1", share(score)),
    },
  );
}

const POINTS = [t("absent"), t("in part"), t("in full")];

function criterionRow({ criterion, points, justification: why }) {
  const { title, description: text, weight, positive = true } = criterion;
  const said = POINTS[points] ?? t("{0} of 2", points?.toFixed?.(1) ?? points);
  const kind = positive ? [
    "bad",
    "warn",
    "good",
  ][Math.round(points)] : ["good", "warn", "bad"][Math.round(points)];
  const facts = [
    el("span", { class: `points ${kind}` }, said),
    t(" · weight {0}", weight),
    positive ? "" : t(" · a flaw, if it holds"),
  ];
  return el(
    "li",
    {},
    el("p", { dir: "auto" }, title && title !== text && el("strong", {}, `${title}: `), text),
    el("p", { class: "small soft" }, facts),
    why && el("p", { class: "small soft", dir: "auto" }, why),
  );
}

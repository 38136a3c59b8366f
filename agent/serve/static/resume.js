// Going on from a run: with more of a budget that it met, or into its depth.
import { post } from "./api.js";
import { el, fresh } from "./dom.js";
import { newTokens, number } from "./format.js";
import { attempt, button, field, input, textarea } from "./parts.js";
import { t } from "./texts.js";

const BUDGETS = {
  max_seconds: [t("Seconds in all"), 1, ({ seconds }) => seconds],
  max_total_tokens: [t("Tokens in all"), 1, ({ usage }) => newTokens(usage ?? {})],
  max_cost: [t("US dollars in all"), "any", ({ usage }) => usage?.cost],
};

/** The budget that a run met, by its setting; null where none ended it. */
export const metBudget = ({ ended_by: name, budgets }) => (
  name in BUDGETS && budgets?.[name] ? name : null
);

/** A form for more of a budget; `send` is given its button and the new budget. */
export function largerBudget(name, run, send, cancel) {
  const [label, step, taken] = BUDGETS[name];
  const limit = run.budgets[name];
  const twice = 2 * Math.max(limit, taken(run) ?? 0);
  const control = input({
    type: "number",
    inputmode: "decimal",
    min: 0,
    step,
    value: step === 1 ? Math.ceil(twice) : Number(twice.toPrecision(2)),
    required: true,
  });
  const press = button(t("Go on with that"), null, { kind: "primary small", type: "submit" });
  const submit = (event) => {
    event.preventDefault();
    send(press, { [name]: Number(control.value) });
  };
  const hint = t("Its budget was {0}. What it took so far counts; 0: no limit.", number(limit));
  return el(
    "form",
    { class: "card row", "aria-label": t("A larger budget"), on: { submit } },
    el("div", { class: "grow" }, field(label, control, hint)),
    press,
    button(t("Cancel"), cancel, { kind: "plain small" }),
  );
}

/** Ask what to look into further: a deep research in the same conversation, over the same sources. */
export function deepening(run, thread, began) {
  const heading = el("h2", { id: fresh("title") }, t("Deepen this research"));
  const text = textarea({ required: true, rows: 3, dir: "auto" });
  const failed = el("div");
  const send = button(t("Deepen"), null, { kind: "primary", type: "submit" });
  const asked = async () => post("/api/runs", {
    question: text.value.trim(),
    effort: "deep",
    attended: true,
    thread: await thread(),
    ...(run.source?.length && { source: run.source }),
  });
  const submit = async (event) => {
    event.preventDefault();
    const started = await attempt(failed, send, asked);
    if (!started) return;
    dialog.close();
    began(started);
  };
  const lead = t("Several investigations go on from this report, in the same conversation.");
  const dialog = el(
    "dialog",
    { "aria-labelledby": heading.id, on: { close: () => dialog.remove() } },
    heading,
    el(
      "form",
      { class: "stack", on: { submit } },
      el("p", { class: "soft" }, lead),
      field(t("What should be looked into further?"), text),
      failed,
      el("div", { class: "row" }, button(t("Cancel"), () => dialog.close()), send),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
}

// Going on with a run that met a budget: how much it may take now.
import { el } from "./dom.js";
import { number } from "./format.js";
import { button, field, input } from "./parts.js";
import { t } from "./texts.js";

const BUDGETS = {
  max_seconds: [t("Seconds in all"), 1, ({ seconds }) => seconds],
  max_total_tokens: [t("Tokens in all"), 1, ({ usage }) => (
    (usage?.prompt_tokens ?? 0) + (usage?.completion_tokens ?? 0)
  )],
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

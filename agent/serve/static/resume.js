// Going on with a run that met a budget: how much it may take now.
import { el } from "./dom.js";
import { number } from "./format.js";
import { button, field, input } from "./parts.js";

const BUDGETS = {
  max_seconds: ["Seconds in all", 1],
  max_total_tokens: ["Tokens in all", 1],
  max_cost: ["US dollars in all", "any"],
};

/** A form for more of a budget than `limit`; `send` is given the button and the new budget. */
export function largerBudget(name, limit, send, cancel) {
  const [label, step] = BUDGETS[name];
  const control = input({
    type: "number", inputmode: "decimal", min: 0, step, value: 2 * limit, required: true,
  });
  const press = button("Go on", null, { kind: "primary small", type: "submit" });
  const submit = (event) => {
    event.preventDefault();
    send(press, { [name]: Number(control.value) });
  };
  const hint = `The run ended at ${number(limit)}. What it took so far counts; 0: no limit.`;
  return el(
    "form",
    { class: "card row", "aria-label": "A larger budget", on: { submit } },
    el("div", { class: "grow" }, field(label, control, hint)),
    press,
    button("Cancel", cancel, { kind: "plain small" }),
  );
}

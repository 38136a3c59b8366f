// Where the server is not on this machine it wants the token that it printed at its start.
import { post } from "./api.js";
import { el, fresh } from "./dom.js";
import { attempt, button, field, input } from "./parts.js";

let shown = null;

export function login(done) {
  if (shown) return;
  const token = input({ type: "password", autocomplete: "current-password", required: true });
  const failed = el("div");
  const enter = button("Enter", null, { kind: "primary", type: "submit" });
  const submit = async (event) => {
    event.preventDefault();
    const said = await attempt(
      failed,
      enter,
      async () => (await post("/api/login", { token: token.value.trim() })) ?? true,
    );
    if (said) shown.close();
  };
  const title = el("h2", { id: fresh("title") }, "Enter the token");
  const lead = el(
    "p",
    { class: "soft" },
    "This server is reached over a network. It printed its token where it was started.",
  );
  const form = el(
    "form",
    { class: "stack", on: { submit } },
    title,
    lead,
    field("Token", token),
    failed,
    el("div", { class: "row" }, enter),
  );
  shown = el(
    "dialog",
    { "aria-labelledby": title.id, on: { cancel: (event) => event.preventDefault(), close: left } },
    form,
  );
  function left() {
    shown.remove();
    shown = null;
    done();
  }
  document.body.append(shown);
  shown.showModal();
}

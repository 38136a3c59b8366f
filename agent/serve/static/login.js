// The server wants its token, unless it was started without one.
import { logIn } from "./api.js";
import { el, fresh } from "./dom.js";
import { attempt, button, field, input } from "./parts.js";
import { t } from "./texts.js";

let shown = null;

export function login(done) {
  if (shown) return;
  const token = input({ type: "password", autocomplete: "current-password", required: true });
  const failed = el("div");
  const enter = button(t("Enter"), null, { kind: "primary", type: "submit" });
  const submit = async (event) => {
    event.preventDefault();
    const said = await attempt(
      failed,
      enter,
      () => logIn(token.value.trim()),
    );
    if (said) shown.close();
  };
  const title = el("h2", { id: fresh("title") }, t("Enter the token"));
  const lead = el(
    "p",
    { class: "soft" },
    t("It is kept in serve-token of the server's data directory, or was given to you. The link " +
      "that the server prints on a terminal at each start enters without it, once."),
  );
  const form = el(
    "form",
    { class: "stack", on: { submit } },
    title,
    lead,
    field(t("Token"), token),
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

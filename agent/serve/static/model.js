// Which model answers: the embedded one, a server on this machine, or an address with a key.
import { get, patch, post } from "./api.js";
import { el, fresh, replace, say } from "./dom.js";
import { attempt, button, choices, field, input, notice, select } from "./parts.js";
import { t } from "./texts.js";

const KEPT = t("A key is kept and is not shown. Left empty, it stays.");

export class ModelForm {
  /** `told`: what /api/settings says; `kept` is given what it says once the choice is kept.
   *
   * `first`: nothing is chosen yet, so that a server which is found is proposed at once.
   */
  constructor(told, kept, first = false) {
    this.kept = kept;
    this.of = Object.fromEntries(told.settings.map((one) => [one.name, one]));
    const { model, base_url: server } = this.of;
    const here = told.embedded.map(({ name, bytes, lacking }) => [
      name, `${name} (${size(bytes)}${lacking ? t(", still to be fetched") : ""})`,
    ]);
    const known = here.some(([name]) => name === model.value);
    if (!server.value && model.value && !known) here.push([model.value, model.value]);
    this.own = select(here, model.value || here[0][0]);
    this.address = input({ type: "text", inputmode: "url", value: server.value, spellcheck: false,
      autocomplete: "off", placeholder: "https://api.openai.com/v1" });
    const list = el("datalist", { id: fresh("models") });
    this.listed = list;
    this.name = input({ type: "text", value: server.value ? model.value : "", list: list.id,
      spellcheck: false, autocomplete: "off", placeholder: t("the only one it lists") });
    this.key = input({ type: "password", autocomplete: "new-password" });
    const key = this.of.api_key;
    this.near = el("div", { class: "row" });
    const where = choices(t("Where the model runs"), [
      ["here", t("Inside rubricem")], ["server", t("On a server")],
    ], server.value ? "server" : "here", () => this.turn());
    this.where = where;
    this.here = el("div", { class: "stack" },
      field(t("Embedded model"), this.own,
        t("Needs no server and no key. It answers narrow questions about documents.")));
    this.there = el("div", { class: "stack" }, this.near,
      field(t("Address"), this.address, from(server)),
      field(t("Model"), this.name, from(model)), list,
      field(t("Key"), this.key, key.value ? KEPT : t("Only where the server wants one.")));
    for (const [control, one] of [
      [this.own, model], [this.name, model], [this.address, server], [this.key, key],
    ]) control.disabled = !one.changeable;
    for (const radio of where.querySelectorAll("input")) radio.disabled = !server.changeable;
    this.said = el("div", { role: "status" });
    this.failed = el("div");
    const test = button(t("Test"), () => this.test(test));
    const keep = button(t("Use this model"), null, { kind: "primary", type: "submit" });
    const submit = (event) => {
      event.preventDefault();
      this.keep(keep);
    };
    this.element = el("form", { class: "card stack", "aria-label": t("Model"), on: { submit } },
      el("div", {}, where), this.here, this.there, this.said, this.failed,
      el("div", { class: "row" }, keep, test));
    this.turn();
    this.look(first);
  }

  turn() {
    const server = this.where.value() === "server";
    this.here.hidden = server;
    this.there.hidden = !server;
    replace(this.said);
    replace(this.failed);
  }

  /** Offers what answers on this machine; nothing is asked that was not found there. */
  async look(first) {
    const { servers } = await get("/api/settings/nearby").catch(() => ({ servers: [] }));
    const take = ({ base_url: address, models }) => {
      this.address.value = address;
      this.models(models);
      this.name.value = models[0] ?? "";
    };
    replace(this.near, servers.map((one) => button(
      t("{0} answers on this machine", one.name), () => take(one), { kind: "small" },
    )));
    if (first && servers.length) {
      this.where.querySelector("[value=server]").click();
      take(servers[0]);
    }
  }

  models(names) {
    replace(this.listed, names.map((value) => el("option", { value })));
  }

  /** What differs from what holds; an empty address stands for the embedded model. */
  values() {
    const server = this.where.value() === "server";
    const wanted = {
      model: server ? this.name.value.trim() : this.own.value,
      base_url: server ? this.address.value.trim() : "",
    };
    const { model, base_url: address } = this.of;
    if (!model.changeable) delete wanted.model;
    if (!address.changeable || wanted.base_url === address.value) delete wanted.base_url;
    if (server && this.key.value && !this.key.disabled) wanted.api_key = this.key.value;
    return wanted;
  }

  async test(press) {
    replace(this.said);
    const told = await attempt(
      this.failed, press, () => post("/api/settings/test", { values: this.values() }),
    );
    if (!told) return;
    this.models(told.models);
    replace(this.said, told.seconds === null
      ? notice(told.lacking ? t("It is fetched with the first question.") : t("It is here."), "", "good")
      : notice(t("{0} answered after {1} s.", told.model, told.seconds), "", "good"));
  }

  async keep(press) {
    const told = await attempt(
      this.failed, press, () => patch("/api/settings", { values: this.values() }),
    );
    if (!told) return;
    say(t("Kept. It answers from the next question on."));
    this.kept(told);
  }
}

/** Where a value came from, for below its control. */
export const from = ({ changeable, origin, set }) => {
  if (!changeable) return t("Set by {0}, and changed there.", origin || t("the program that serves it"));
  return set ? t("From {0}", origin) : "";
};

const size = (bytes) => (bytes < 1e9 ? `${Math.round(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(1)} GB`);

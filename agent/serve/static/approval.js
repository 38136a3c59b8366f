// A person is asked: the plan to approve, change or reject, or one question to answer.
import { path, post } from "./api.js";
import { el, fresh, replace, say } from "./dom.js";
import { attempt, button, field, input, notice, textarea } from "./parts.js";
import { t } from "./texts.js";

const SAID = {
  approve: t("The plan was approved."),
  edit: t("The plan was changed and is followed as it stands now."),
  reject: t("The plan was rejected; another one is being written."),
  answer: t("The question was answered."),
  once: t("It was allowed once."),
  run: t("It was allowed for the rest of this run."),
  always: t("It was allowed for good."),
  never: t("It was not allowed."),
};
const TITLES = {
  plan: t("Is this the right plan?"),
  clarify: t("The model asks you"),
  permit: t("May this be done?"),
};
const SPOKEN = {
  plan: t("The plan waits for your approval."),
  clarify: t("The model asks you a question."),
  permit: t("The run waits for your word."),
};
const PERMITS = {
  once: t("Once"),
  run: t("For this run"),
  always: t("Always"),
  never: t("No"),
};

export class AskPanel {
  constructor(run) {
    this.run = run;
    this.asked = null;
    this.element = null;
  }

  /** The panel of what is asked now. */
  ask(asked) {
    this.asked = asked;
    const title = el(
      "h2",
      { id: fresh("asked") },
      TITLES[asked.kind],
    );
    this.failed = el("div");
    this.body = el("div", { class: "stack" });
    const card = el(
      "section",
      { class: "card ask-card stack", "aria-labelledby": title.id },
      title,
      this.body,
      this.failed,
    );
    this.element = el("div", { class: "asked" }, card);
    if (asked.kind === "plan") this.plan();
    else if (asked.kind === "permit") this.permit();
    else this.doubt();
    say(SPOKEN[asked.kind]);
    return this.element;
  }

  /** Somebody answered, here or elsewhere. */
  answered(id, decision) {
    if (id !== this.asked?.id) return;
    const { asked } = this;
    this.asked = null;
    const said = notice(SAID[decision] ?? t("It was answered."), "", "good");
    const followed = asked.kind === "plan" && decision === "approve";
    replace(this.element, followed && el("div", { class: "card" }, planShown(asked)), said);
  }

  /** Bring into view what is still asked. */
  show() {
    if (this.asked) this.element.scrollIntoView({ block: "nearest" });
  }

  /** The run ended, or a person is no longer waited for. */
  over() {
    if (this.asked) replace(this.element);
    this.asked = null;
  }

  plan() {
    const buttons = [
      button(
        t("Follow this plan"),
        (event) => this.answer(event, { decision: "approve" }),
        { kind: "primary" },
      ),
      button(t("Change it"), () => this.edit()),
      button(t("Another plan"), () => this.reject()),
    ];
    replace(this.body, planShown(this.asked), el("div", { class: "row" }, buttons));
  }

  edit() {
    const { rubric = [], research_plan = "", query = "" } = this.asked;
    const [items, steps, first] = [
      textarea({}, rubric.join("\n")),
      textarea({}, research_plan),
      input({ value: query }),
    ];
    const plan = () => ({
      rubric: items.value.split("\n").map((line) => line.trim()).filter(Boolean),
      research_plan: steps.value.trim(),
      query: first.value.trim(),
    });
    const fields = [
      field(t("Rubric, one item in each line"), items),
      field(t("Research plan"), steps),
      field(t("First search"), first),
    ];
    const send = button(
      t("Follow the changed plan"),
      (event) => this.answer(event, { decision: "edit", plan: plan() }),
      { kind: "primary" },
    );
    this.form(fields, send, items);
  }

  reject() {
    const why = textarea({ placeholder: t("What should be different?") });
    const send = button(
      t("Write another plan"),
      (event) => this.answer(event, { decision: "reject", text: why.value.trim() }),
      { kind: "primary" },
    );
    this.form([field(t("Reason"), why, t("The model reads it before it plans again."))], send, why);
  }

  form(fields, send, focused) {
    const back = button(t("Back"), () => {
      this.plan();
      this.body.querySelector("button")?.focus();
    }, { kind: "plain" });
    replace(this.body, fields, el("div", { class: "row" }, send, back));
    focused.focus();
  }

  doubt() {
    const reply = textarea({ rows: 3 });
    const send = button(
      t("Answer"),
      (event) => this.answer(event, { decision: "answer", text: reply.value.trim() }),
      { kind: "primary" },
    );
    const none = button(
      t("Go on without"),
      (event) => this.answer(event, { decision: "answer", text: "" }),
      { kind: "plain" },
    );
    replace(
      this.body,
      el("p", { class: "prose", dir: "auto" }, this.asked.text),
      field(t("Your answer"), reply),
      el("div", { class: "row" }, send, none),
    );
  }

  permit() {
    const { what, to, text, choices } = this.asked;
    const said = what === "act"
      ? t("The model wants to call {0}, which may change something, with:", to)
      : t("The model wants to send to {0}, after it has read private text:", to);
    const buttons = choices.map((decision) =>
      button(
        PERMITS[decision],
        (event) => this.answer(event, { decision }),
        { kind: decision === "never" ? "plain" : "" },
      )
    );
    replace(
      this.body,
      el("p", {}, said),
      el("p", { class: "prose", dir: "auto" }, text),
      el("div", { class: "row" }, buttons),
    );
  }

  async answer({ currentTarget }, decision) {
    const { id } = this.asked;
    const send = async () => {
      await post(path("runs", this.run, "answer"), { id, ...decision }).catch(conflict);
      return true;
    };
    const conflict = (error) => {
      if (error.status !== 409) throw error;
      this.elsewhere();
    };
    const sent = await attempt(this.failed, currentTarget, send);
    if (sent) this.answered(id, decision.decision);
  }

  /** Another window was faster. */
  elsewhere() {
    this.asked = null;
    replace(
      this.element,
      notice(
        t("This was answered already, in another window."),
        t("The run goes on with that answer."),
      ),
    );
  }
}

function planShown({ rubric, research_plan, query, text }) {
  if (!rubric?.length && !research_plan) return el("p", { class: "prose", dir: "auto" }, text);
  const part = (name, ...shown) => el("div", {}, el("h3", {}, name), shown);
  return el("div", { class: "plan stack" },
    rubric?.length > 0 && part(
      t("A good answer …"),
      el("ul", { class: "bullets" }, rubric.map((item) => el("li", { dir: "auto" }, item))),
    ),
    research_plan && part(
      t("Research plan"),
      el("p", { class: "prose", dir: "auto" }, research_plan),
    ),
    query && part(t("First search"), el("p", {}, el("q", {}, query))));
}

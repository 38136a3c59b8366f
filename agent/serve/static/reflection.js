// One reflection: read, corrected, released from quarantine, deleted; where it is from.
import { get, patch, path, post, remove } from "./api.js";
import { el, replace } from "./dom.js";
import { capital, counted, share, when } from "./format.js";
import {
  attempt, badge, button, confirmed, fact, failure, field, notice, textarea, waiting,
} from "./parts.js";
import { t } from "./texts.js";

function marks(item) {
  return [
    item.fixed && badge(t("Edited")),
    item.state === "quarantine" && badge(t("Quarantine"), "warn"),
    item.state === "replaced" && badge(t("Replaced")),
  ];
}

/** An item as one of a list. */
export function row(item) {
  const facts = [
    el("span", {}, t("score {0}", share(item.score))),
    item.similarity != null && el("span", {}, t("likeness {0}", share(item.similarity))),
    el("span", {}, when(item.written_at)),
  ];
  const head = el(
    "span",
    { class: "row apart" },
    el("strong", { dir: "auto" }, item.question),
    el("span", { class: "row" }, marks(item)),
  );
  return el(
    "li",
    {},
    el(
      "a",
      { class: "item", href: `#/memory/${encodeURIComponent(item.id)}` },
      head,
      el("p", { dir: "auto" }, item.takeaways),
      el("span", { class: "row" }, facts),
    ),
  );
}

export function one(name, signal) {
  const place = el(
    "div",
    { class: "view" },
    el("h1", { tabindex: "-1", class: "unseen" }, t("Reflection")),
    waiting(),
  );
  get(path("bank", name), { signal }).then(
    (item) => signal.aborted || new ItemView(place, item),
    (error) => signal.aborted || replace(
      place,
      el("h1", { tabindex: "-1" }, t("This reflection cannot be shown")),
      failure(error),
    ),
  );
  return place;
}

class ItemView {
  constructor(place, item) {
    this.place = place;
    this.failed = el("div");
    this.draw(item);
  }

  draw(item) {
    this.item = item;
    replace(this.failed);
    const back = el("p", { class: "kicker" }, el("a", { href: "#/memory" }, t("Memory")));
    const head = el(
      "header",
      { class: "view-head" },
      back,
      el("h1", { tabindex: "-1", dir: "auto" }, item.question),
      el("div", { class: "row" }, marks(item)),
    );
    replace(
      this.place,
      head,
      el(
        "div",
        { class: "stack" },
        this.quarantine(),
        this.failed,
        this.form(),
        provenance(item),
        earlier(item),
        this.removal(),
      ),
    );
  }

  quarantine() {
    const { flags = [], state } = this.item;
    if (state !== "quarantine") return null;
    const release = button(t("Release it"), (event) => this.release(event), { kind: "small" });
    const why = el("ul", { class: "bullets" }, flags.map((flag) => el("li", {}, flag)));
    return el(
      "section",
      { class: "card stack tight quarantine", "aria-label": t("Quarantine") },
      notice(
        t("It is in quarantine and put before no question."),
        t("Read it, then release it if it is harmless."),
      ),
      why,
      el("div", {}, release),
    );
  }

  /** What can be changed; of a reflection that was replaced, nothing. */
  form() {
    const { rubrics, takeaways, state } = this.item;
    this.said = el("div", { role: "status" });
    if (state === "replaced") {
      const read = (text) => el("p", { class: "prose", dir: "auto" }, text);
      const said = t("It was replaced by another reflection on this question.");
      return [notice(said), read(takeaways), read(rubrics)];
    }
    const [judged, taught] = [textarea({ rows: 4 }, rubrics), textarea({ rows: 4 }, takeaways)];
    const keep = button(t("Keep the changes"), null, { kind: "primary", type: "submit" });
    const submit = (event) => {
      event.preventDefault();
      this.change(
        keep,
        { rubrics: judged.value, takeaways: taught.value },
        t("Kept as you wrote it. No run replaces it."),
      );
    };
    return el(
      "form",
      { class: "stack", on: { submit } },
      field(t("Takeaways"), taught, t("What carries over to other questions.")),
      field(t("Rubrics"), judged, t("What a good answer to such a question holds.")),
      el("div", { class: "row" }, keep),
      this.said,
    );
  }

  async change(control, change, said) {
    const kept = await attempt(
      this.failed,
      control,
      () => patch(path("bank", this.item.id), change),
    );
    if (!kept) return;
    history.replaceState(null, "", `#/memory/${encodeURIComponent(kept.id)}`);
    this.draw({ history: this.item.history, ...kept });
    replace(
      this.said,
      kept.warnings?.map((warning) => notice(warning)),
      said && !kept.warnings?.length && notice(said, "", "good"),
    );
  }

  async release({ currentTarget }) {
    const free = await attempt(
      this.failed,
      currentTarget,
      () => post(path("bank", this.item.id, "release"), {}),
    );
    if (!free) return;
    this.draw({ history: this.item.history, ...free });
    const said = free.instead
      ? t("Released into the history: {0} counts.", free.instead.id)
      : t("Released.");
    replace(this.said, notice(said, "", "good"));
    this.place.querySelector("h1").focus();
  }

  removal() {
    const forget = button(t("Delete it"), async () => {
      const what = t("It leaves the bank. The run that taught it stays.");
      if (!(await confirmed(t("Delete this reflection?"), what, t("Delete")))) return;
      const gone = await attempt(this.failed, forget, () => remove(path("bank", this.item.id)));
      if (gone) location.hash = "#/memory";
    }, { kind: "small danger", drawn: "trash" });
    return el("div", {}, forget);
  }
}

const ORIGINS = {
  run: t("a run that was judged"),
  hand: t("edited by hand"),
  import: t("imported from another bank"),
};

function provenance(item) {
  const parts = item.reflection_score;
  const run = item.run ?? item.thread;
  const stages = item.stage_scores?.length ? item.stage_scores.map(share).join(" · ") : "";
  const facts = [
    [t("Score"), share(item.score)],
    ...(
      parts ? [
        "diagnostic_accuracy",
        "specificity",
        "scope_and_balance",
      ].map((name) => [capital(name), share(parts[name])]) : []
    ),
    [t("Came from"), ORIGINS[item.origin] ?? item.origin],
    [t("Written"), when(item.written_at)],
    [t("Model"), item.policy],
    [t("Judge"), item.judge],
    [t("Stages of its run"), stages],
    [t("Put before"), counted(item.recalled, "question")],
    [t("Replaces"), item.replaces],
    [t("Id"), item.id],
  ];
  const source = run ? fact(
    t("Run"),
    el("a", { href: `#/run/${encodeURIComponent(run)}` }, run),
  ) : item.trajectory_id && fact(t("Run"), item.trajectory_id);
  return el(
    "section",
    { class: "part" },
    el("h2", {}, t("Where it comes from")),
    el(
      "dl",
      { class: "facts" },
      source,
      facts.filter(([, value]) => value).map(([name, value]) => fact(name, value)),
    ),
    parts?.justification && el("p", { class: "soft", dir: "auto" }, parts.justification),
  );
}

/** Other reflections on the same question: what was replaced, or what stands instead. */
function earlier({ history }) {
  if (!history?.length) return null;
  return el(
    "section",
    { class: "part" },
    el("h2", {}, t("Others on this question")),
    el("ul", { class: "list" }, history.map(row)),
  );
}

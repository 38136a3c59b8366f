// One reflection: read, corrected, pinned, switched off, let out of quarantine; where it is from.
import { get, patch, path, post, remove } from "./api.js";
import { el, replace } from "./dom.js";
import { capital, counted, share, when } from "./format.js";
import { icon } from "./icons.js";
import {
  attempt, badge, button, confirmed, fact, failure, field, notice, textarea, toggle, waiting,
} from "./parts.js";
import { t } from "./texts.js";

function marks(item) {
  return [
    item.pinned && badge([icon("pin"), t("Pinned")], "live"),
    item.state === "quarantine" && badge(t("Quarantine"), "warn"),
    item.state === "replaced" && badge(t("Replaced")),
    (item.disabled || item.state === "disabled") && badge(t("Disabled")),
  ];
}

/** What a run found, in a line. */
function found({ pointers, searches, missing }) {
  const hits = searches.filter(({ hit }) => hit).length;
  return [
    t("{0} of {1} found ", hits, counted(searches.length, "search", "searches")) +
      pointers.map(({ title }) => title).join(", "),
    missing.length && t("not found: {0}", missing.join("; ")),
  ].filter(Boolean).join(" · ");
}

const lines = (label, texts) => texts.length > 0 && el(
  "section",
  { class: "stack tight" },
  el("h2", {}, label),
  el("ul", { class: "bullets" }, texts.map((text) => el("li", { dir: "auto" }, text))),
);

const OFFERED = {
  pointer: t("Passages offered"), query: t("Queries tried"), miss: t("Searches left out"),
  vain: t("Vain pages passed over"), plan: t("Plans followed"), reading: t("Pages read as before"),
};

/** What a run asked, found and missed: a record, to be read. */
function record({ names, lookups, searches, pointers, missing, counts, note }) {
  const passages = (count) => counted(count, "passage");
  return [
    note && notice(capital(note)),
    lines(
      t("Looked up"),
      lookups.map(({ asked, answer }) => `${asked} ${answer || t("(not found)")}`),
    ),
    lines(t("Searched"), searches.map(
      ({ query, hit, passages: all, new: fresh }) =>
        t("{0} ({1}: {2}, {3} new)", query, hit ? "hit" : "miss", passages(all), fresh)
    )),
    lines(t("Sources"), pointers.map(
      ({ title, location, place }) => [title, location, place].filter(Boolean).join(" · ")
    )),
    lines(t("Not found"), missing),
    lines(t("What came of it"), counts.map(
      ({ use, shown, runs, used, failed }) =>
        t("{0}: {1} in {2}, {3} of use", OFFERED[use] ?? use, shown, counted(runs, "run"), used) +
          (failed ? t(", {0} led nowhere", failed) : "")
    )),
    lines(t("Names"), names),
  ];
}

/** An item as one of a list. */
export function row(item) {
  const facts = [
    el("span", {}, t(item.kind === "episode" ? "found {0}" : "score {0}", share(item.score))),
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
      el("p", { dir: "auto" }, item.kind === "episode" ? found(item) : item.takeaways),
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
    const { kind, rubrics, takeaways, state } = this.item;
    this.said = el("div", { role: "status" });
    if (kind === "episode") {
      const kept = state === "replaced"
        ? notice(t("It was replaced by another run on this question."))
        : this.switches();
      return el("div", { class: "stack" }, record(this.item), this.said, kept);
    }
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
        t("Kept. It stands in the bank as you wrote it."),
      );
    };
    return el(
      "form",
      { class: "stack", on: { submit } },
      field(t("Takeaways"), taught, t("What carries over to other questions.")),
      field(t("Rubrics"), judged, t("What a good answer to such a question holds.")),
      el("div", { class: "row" }, keep),
      this.said,
      this.switches(),
    );
  }

  switches() {
    const { kind, pinned, disabled } = this.item;
    const pin = toggle(
      t("Pinned: never pushed out by others"),
      Boolean(pinned),
      ({ checked }) => this.set(pin.box, { pinned: checked }),
    );
    const off = toggle(
      kind === "episode" ? t("Disabled: leads no search") : t(
        "Disabled: not put before any question"
      ),
      Boolean(disabled),
      ({ checked }) => this.set(off.box, { disabled: checked }),
    );
    return el("div", { class: "switches" }, pin, off);
  }

  async set(box, change) {
    if (!(await this.change(box, change, ""))) box.checked = !box.checked;
  }

  async change(control, change, said) {
    const kept = await attempt(
      this.failed,
      control,
      () => patch(path("bank", this.item.id), { ...change, version: this.item.version }),
    );
    if (!kept) return false;
    history.replaceState(null, "", `#/memory/${encodeURIComponent(kept.id)}`);
    const focused = control.getAttribute("role") === "switch"
      ? control.parentElement.textContent
      : null;
    this.draw({ history: this.item.history, ...kept });
    replace(
      this.said,
      kept.warnings?.map((warning) => notice(warning)),
      said && !kept.warnings?.length && notice(said, "", "good"),
    );
    const switches = [...this.place.querySelectorAll(".switch")];
    switches.find((label) => label.textContent === focused)?.querySelector("input").focus();
    return true;
  }

  async release({ currentTarget }) {
    const free = await attempt(
      this.failed,
      currentTarget,
      () => post(path("bank", this.item.id, "release"), { version: this.item.version }),
    );
    if (!free) return;
    this.draw({ history: this.item.history, ...free });
    replace(this.said, notice(free.said, "", "good"));
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
  const episode = item.kind === "episode";
  const parts = item.reflection_score;
  const rests = item.rests_on?.map(({ kind, name }) => `${kind} ${name}`).join("; ");
  const tested = item.counts?.filter(({ use }) => use === "lesson").map(
    ({ shown, used }) => t("{0} of {1} held up when asked again", used, shown)
  );
  const run = item.run ?? item.thread;
  const stages = item.stage_scores?.length ? item.stage_scores.map(share).join(" · ") : "";
  const facts = [
    [episode ? t("Found of what it looked up") : t("Score"), share(item.score)],
    ...(
      parts ? [
        "diagnostic_accuracy",
        "specificity",
        "scope_and_balance",
      ].map((name) => [capital(name), share(parts[name])]) : []
    ),
    [
      t("Came from"),
      episode && item.origin === "run" ? t("a run") : ORIGINS[item.origin] ?? item.origin,
    ],
    [t("Written"), when(item.written_at)],
    [t("Model"), item.policy],
    [t("Judge"), item.judge],
    [t("Stages of its run"), stages],
    [t("Its lessons rest on"), rests],
    [t("Its lessons"), tested?.join()],
    [
      episode ? t("Recalled by") : t("Put before"),
      item.uses == null ? "" : counted(
        typeof item.uses === "number" ? item.uses : item.uses.length,
        episode ? "run" : "question",
      ),
    ],
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

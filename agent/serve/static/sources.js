// Where a question is looked up: what the server offers, and documents sent to it, or deleted.
import { call, get, path, remove } from "./api.js";
import { el, replace } from "./dom.js";
import { counted } from "./format.js";
import { attempt, button, confirmed, failure } from "./parts.js";
import { t } from "./texts.js";

const NAMES = {
  python: t("Python documentation"),
  web: t("Web"),
  scholar: t("Papers"),
  arxiv: "arXiv",
  pubmed: "PubMed",
  wikipedia: t("Wikipedia"),
  history: t("Earlier runs"),
  auto: t("Automatic"),
};
const UPLOADED = /^upload:/;

const shownName = (name) => NAMES[name] ?? name.replace(UPLOADED, "");

export class SourcePicker {
  constructor() {
    this.chips = new Map();
    this.place = el("div", { class: "chips" });
    this.failed = el("div");
    this.kept = el("ul", { class: "uploads" });
    this.uploads = el(
      "details",
      { class: "fold", hidden: true, on: { toggle: () => this.uploads.open && this.list() } },
      el("summary", {}, t("Uploaded documents")),
      this.kept,
    );
    this.element = el(
      "fieldset",
      { class: "stack tight" },
      el("legend", { class: "legend" }, t("Sources")),
      this.place,
      this.uploads,
      this.failed,
    );
  }

  /** Every source by its name; those in `usual` are used where nothing else is said. */
  offer(names, usual) {
    for (const name of names) this.add(name, usual.includes(name));
    this.usual = this.chosen().join();
    this.place.append(this.adding());
  }

  chosen() {
    return [...this.chips].filter(([, { box }]) => box.checked).map(([name]) => name);
  }

  /** What was chosen, where that is not what the server takes by itself. */
  changed() {
    const chosen = this.chosen();
    return chosen.length && chosen.join() !== this.usual ? chosen : null;
  }

  add(name, checked) {
    const box = el("input", { type: "checkbox", value: name, checked });
    const chip = el("label", { class: "chip" }, box, shownName(name));
    this.place.insertBefore(chip, this.wrapped ?? null);
    this.chips.set(name, { box, chip });
    this.show();
  }

  drop(name) {
    this.chips.get(name)?.chip.remove();
    this.chips.delete(name);
    this.show();
  }

  show() {
    this.uploads.hidden = ![...this.chips.keys()].some((name) => UPLOADED.test(name));
  }

  /** A button that uploads documents and adds them as a chosen source. */
  adding() {
    const files = el(
      "input",
      {
        type: "file",
        multiple: true,
        class: "unseen",
        "aria-label": t("Documents to search"),
        accept:
          ".pdf,.md,.txt,.html,.docx,.pptx,.xlsx,.epub,.csv,.tsv,.rst,.odt,.ods,.odp,.rtf,.ipynb,.eml" +
          ",.mhtml,.json,.jsonl,.yaml,.xml,.tex,.org,.adoc,.log,.srt,.vtt,.zip",
      },
    );
    this.press = button(
      t("Add documents"),
      () => files.click(),
      { kind: "plain small", drawn: "ask" },
    );
    files.tabIndex = -1;
    files.addEventListener("change", async () => {
      if (!files.files.length) return;
      const added = await attempt(this.failed, this.press, () => sent(files.files, this.chips));
      files.value = "";
      if (!added) return;
      this.add(added.source, true);
      if (this.uploads.open) this.list();
      this.press.focus();
    });
    this.wrapped = el("span", {}, this.press, files);
    return this.wrapped;
  }

  async list() {
    try {
      const { uploads } = await get("/api/uploads");
      replace(this.kept, uploads.map((one) => this.folder(one)));
    } catch (error) {
      replace(this.failed, failure(error));
    }
  }

  folder({ name, source, documents }) {
    const press = button(t("Delete"), () => this.forget(name, source, documents.length, press), {
      kind: "plain small danger", drawn: "trash", "aria-label": t("Delete {0}", name),
    });
    const row = el("div", { class: "row apart" }, el("strong", { dir: "auto" }, name), press);
    const names = documents.map((each) => el("li", { dir: "auto" }, each.name));
    return el("li", {}, row, el("ul", { class: "small soft" }, names));
  }

  async forget(name, source, count, press) {
    const what = t("{0} of {1} will be deleted on the server. ", counted(count, "document"), name) +
      t("Reports that cite them keep the passages.");
    if (!(await confirmed(t("Delete these documents?"), what, t("Delete")))) return;
    const gone = await attempt(this.failed, press, () => remove(path("uploads", name)));
    if (!gone) return;
    this.drop(source);
    (this.uploads.hidden ? this.press : this.uploads.querySelector("summary")).focus();
    this.list();
  }
}

const LONGEST_STEM = 40;

/** Documents are kept under the name of the first, and under another one than what is there. */
function folderOf(files, taken) {
  const plain = files[0].name.normalize("NFKC").replace(/\.[^.]*$/, "");
  const stem = plain.replace(/[/\\:*?"<>|\p{C}]/gu, " ").slice(0, LONGEST_STEM);
  const named = stem.replace(/^[. ]+|[. ]+$/g, "") || t("Documents");
  const whole = files.length > 1 ? t("{0} and {1} more", named, files.length - 1) : named;
  const used = new Set([...taken.keys()].map((name) => shownName(name).toLowerCase()));
  let [folder, number] = [whole, 1];
  while (used.has(folder.toLowerCase())) folder = `${whole} ${(number += 1)}`;
  return folder;
}

function sent(files, taken) {
  const body = new FormData();
  body.append("folder", folderOf(files, taken));
  for (const file of files) body.append("documents", file, file.name);
  return call("POST", "/api/uploads", body);
}

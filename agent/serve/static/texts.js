// What the page says: English as it stands in the code, another language by one file of texts/.
//
// `texts/en.json` lists every text. A translation is that file under its language's code, with what
// is said in the place of each value; what it lacks stays English. {0}, {1} are filled in, and
// "passage|passages" has a form for each number that the language tells apart, as FORMS has them.
const FORMS = ["zero", "one", "two", "few", "many", "other"];
const TO_THE_LEFT = ["ar", "fa", "he", "ur"];
const wanted = (navigator.languages[0] ?? "en").split("-")[0].toLowerCase();
const table = wanted === "en" ? null : await translation(wanted);
export const language = table ? wanted : "en";
document.documentElement.lang = language;
document.documentElement.dir = TO_THE_LEFT.includes(language) ? "rtl" : "ltr";

async function translation(code) {
  if (!/^[a-z]{2,3}$/.test(code)) return null;
  const reply = await fetch(`static/texts/${code}.json`).catch(() => null);
  return reply?.ok ? reply.json().catch(() => null) : null;
}

/** A text in the page's language, with the values in their places. */
export const t = (text, ...values) => (table?.[text] || text).replace(
  /\{(\d+)\}/g,
  (whole, place) => values[place] ?? whole,
);

/** Of the forms of a word, parted by |, the one that goes with a number. */
export function plural(forms, count) {
  const rules = new Intl.PluralRules(language);
  const told = rules.resolvedOptions().pluralCategories;
  const found = t(forms).split("|");
  return found[FORMS.filter((each) => told.includes(each)).indexOf(rules.select(count))]
    ?? found.at(-1);
}

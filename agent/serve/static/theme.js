// Loaded before the first paint, so that a chosen theme never flashes in the other one. Written as any
// browser of the last ten years reads it: where the page's own code does not run, this says so.
var chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
addEventListener("load", function () {
  setTimeout(function () {
    document.getElementById("old").hidden = false;
  }, 4000);
});

// Sets theme and density before the first paint. It is a file of its own because the content security policy allows no inline script.
(() => {
  const chosen = localStorage.getItem("countersign.theme");
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const contrast = matchMedia("(prefers-contrast: more)").matches;
  const page = document.documentElement.dataset;
  page.theme = chosen ?? (contrast ? "contrast" : dark ? "dark" : "light");
  page.density = localStorage.getItem("countersign.density") ?? "comfortable";
})();

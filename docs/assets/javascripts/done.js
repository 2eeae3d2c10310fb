/* Remembers in this browser which pages of the path a reader has done, ticks links to them, and lets
 * the front page go on from there. On a page that answers a lab, the menu shows the lab as the place
 * where the reader is, and below it the pages of the bar. */
(function () {
  "use strict";

  const KEPT = "shardbook.done"; // addresses below a language's root, the same in each language
  const SAID = {
    en: { choice: "I am done with this page", done: "done", theory: "Continue with theory", lab: "Continue with" },
    es: { choice: "He terminado esta página", done: "hecha", theory: "Seguir con la teoría", lab: "Seguir con el" },
  };
  const say = SAID[document.documentElement.lang] || SAID.en;
  const config = document.getElementById("__config");
  const home = new URL(`${JSON.parse(config.textContent).base}/`, location.href).pathname;
  const place = (address) => new URL(address, location.href).pathname.slice(home.length);
  let unkept = null; // the pages of a browser that keeps nothing

  function load() {
    try {
      const kept = unkept || JSON.parse(localStorage.getItem(KEPT));
      return new Set(Array.isArray(kept) ? kept : []);
    } catch {
      return new Set();
    }
  }

  function save(places) {
    try {
      localStorage.setItem(KEPT, JSON.stringify([...places]));
    } catch {
      unkept = [...places];
    }
  }

  /* The front page's button leads to the first page of the path that is not done, if one is. */
  const button = document.querySelector(".hero .md-button--primary");
  const start = button && [button.textContent, button.href];
  function showNext(places) {
    const path = [...document.querySelectorAll(".path li > a")];
    const next = path.findIndex((link) => !places.has(place(link.href)));
    let [text, href] = start;
    if (next >= 0 && path.some((link) => places.has(place(link.href)))) {
      const isLab = path[next].closest(".path--labs");
      text = isLab ? `${say.lab} ${path[next].textContent.split(":")[0].toLowerCase()}` : `${say.theory} ${next + 1}`;
      href = path[next].href;
    }
    [button.textContent, button.href] = [text, href];
  }

  function show() {
    const places = load();
    const links = ".md-nav--primary a.md-nav__link:not([href*='#'], :has(.md-nav__icon)), .path li > a, .md-footer__link";
    for (const link of document.querySelectorAll(links)) {
      const title = link.querySelector(".md-ellipsis") || link;
      title.classList.toggle("done", places.has(place(link.href)));
      title.dataset.done = say.done;
    }
    if (button) showNext(places);
  }

  const lab = document.querySelector(".trail a");
  for (const link of document.querySelectorAll(".md-nav--primary a.md-nav__link")) {
    if (!lab || link.href !== lab.href) continue;
    link.classList.add("md-nav__link--active");
    const list = Object.assign(document.createElement("ul"), { className: "md-nav__list trail-pages" });
    for (const page of document.querySelectorAll(".trail > :not(:first-child)")) {
      const item = Object.assign(document.createElement("li"), { className: "md-nav__item" });
      item.append(page.cloneNode(true));
      item.firstChild.className = "md-nav__link";
      list.append(item);
    }
    link.after(list);
  }

  const goal = document.querySelector(".md-content .goal");
  if (goal) {
    const input = Object.assign(document.createElement("input"), { type: "checkbox" });
    input.checked = load().has(place(""));
    input.addEventListener("change", () => {
      const places = load(); // read again: another tab may have written
      if (input.checked) places.add(place(""));
      else places.delete(place(""));
      save(places);
      show();
    });
    const label = Object.assign(document.createElement("label"), { className: "done-choice" });
    label.append(input, say.choice);
    goal.closest("article").append(label);
  }
  show();
  window.addEventListener("storage", show);
})();

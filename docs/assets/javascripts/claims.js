/* Claims: those of one verdict alone, and those that a lab asks folded until its reader opens them, one or all. */
(function () {
  "use strict";

  const claims = document.querySelector(".claims");
  if (!claims) return;
  const SAID = {
    en: {
      all: "all", show: "show the verdict", choose: "Claims by verdict",
      reveal: "Show all verdicts", fold: "Fold what labs ask",
    },
    es: {
      all: "todas", show: "ver el veredicto", choose: "Afirmaciones por veredicto",
      reveal: "Ver todos los veredictos", fold: "Plegar lo que preguntan los laboratorios",
    },
  };
  const say = SAID[document.documentElement.lang] || SAID.en;
  const cards = [...claims.querySelectorAll("tbody tr")];
  const verdict = (card) => card.querySelector(".verdict").textContent;

  function button(text, pressed) {
    const created = document.createElement("button");
    created.type = "button";
    created.textContent = text;
    created.addEventListener("click", pressed);
    return created;
  }

  const open = (card) => card.classList.remove("folded"); // its button goes too, by the style
  const asked = [...claims.querySelectorAll(".asked")].map((question) => {
    const card = question.closest("tr");
    card.classList.add("folded");
    question.after(" ", button(say.show, () => open(card)));
    return card;
  });

  const everything = button(say.reveal, () => {
    const reveal = everything.textContent === say.reveal;
    for (const card of asked) card.classList.toggle("folded", !reveal);
    everything.textContent = reveal ? say.fold : say.reveal;
  });

  // Whoever asks for one verdict, or for one claim, asks to see it.
  function choose(chosen, pressed) {
    for (const card of cards) {
      card.hidden = chosen !== null && verdict(card) !== chosen;
      if (chosen !== null && !card.hidden) open(card);
    }
    for (const choice of group.children) {
      choice.setAttribute("aria-pressed", String(choice === pressed));
    }
  }

  const group = document.createElement("div");
  group.className = "claims-chosen";
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", say.choose);
  for (const text of [null, ...new Set(cards.map(verdict))]) {
    const count = cards.filter((card) => text === null || verdict(card) === text).length;
    const choice = button(`${text || say.all} (${count})`, () => choose(text, choice));
    choice.setAttribute("aria-pressed", String(text === null));
    group.append(choice);
  }
  const bar = document.createElement("div");
  bar.className = "claims-bar";
  bar.append(everything, group);
  claims.before(bar);

  function openLinkedClaim() {
    const card = document.getElementById(location.hash.slice(1))?.closest(".claims tr");
    if (!card) return;
    card.hidden = false;
    open(card);
    card.scrollIntoView();
  }
  openLinkedClaim();
  window.addEventListener("hashchange", openLinkedClaim);
})();

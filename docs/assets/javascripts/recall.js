/* Checks and grades what recall cards ask, and remembers in this browser when to ask again.
 *
 * `shardbook recall` asks the same cards in a terminal, with a schedule of its own. */
(function () {
  "use strict";

  const KEPT = "shardbook.recall";
  const DAY = 86400000; // milliseconds
  const TOLERANCE = 0.01; // of bytes, as in tools/notelab/recall/quantity.py
  const WRITTEN = /^(\d[\d\s_,.'’]*?(?:e[+-]?\d+)?)\s*(\p{L}+)?\.?$/iu;
  const GROUPED = /^\d{1,3}([,.])\d{3}(?:\1\d{3})*$/;
  // Days until a card is asked again, after the days that it was kept for last time.
  const GRADES = [() => 0, (d) => Math.max(1, 1.2 * d), (d) => Math.max(3, 2.5 * d), (d) => Math.max(7, 4 * d)];
  const SAID = {
    en: {
      grades: ["again", "hard", "good", "easy"], how: "How well did you know it?",
      typed: "Your answer, with its unit", check: "Check", right: "Right.", wrong: "Not that.",
      unread: "Write a number with its unit: 16 GB, 16 GiB, 16e9 B, 4 ranks.",
      due: "due again", later: (days) => `again in ${days} ${days === 1 ? "day" : "days"}`,
      stale: "stale: the lines it rests on have changed since you answered it",
    },
    es: {
      grades: ["otra vez", "difícil", "bien", "fácil"], how: "¿La sabías?",
      typed: "Tu respuesta, con su unidad", check: "Comprobar", right: "Correcto.", wrong: "No es eso.",
      unread: "Escribe un número con su unidad: 16 GB, 16 GiB, 16e9 B, 4 ranks.",
      due: "toca repasarla", later: (days) => `otra vez en ${days} ${days === 1 ? "día" : "días"}`,
      stale: "caducada: las líneas en que se apoya han cambiado desde que la respondiste",
    },
  };
  const say = SAID[document.documentElement.lang] || SAID.en;

  function history() {
    let text = null;
    try {
      text = localStorage.getItem(KEPT);
      const grades = JSON.parse(text || "{}");
      if (grades && Object.getPrototypeOf(grades) === Object.prototype) return grades;
    } catch { /* not ours, or no storage: below */ }
    if (text) localStorage.setItem(`${KEPT}.corrupt`, text); // kept aside, and started again
    return {};
  }

  function keep(card, grade) {
    const grades = history(); // read again: another tab may have written
    const days = GRADES[grade]((grades[card.dataset.recall] || {}).days || 0);
    grades[card.dataset.recall] = { days, due: Date.now() + days * DAY, evidence: card.dataset.evidence };
    try {
      localStorage.setItem(KEPT, JSON.stringify(grades));
    } catch { /* a browser that keeps nothing: the card works all the same */ }
    show(card);
  }

  function show(card) {
    const grade = history()[card.dataset.recall];
    if (!grade) return;
    const days = Math.ceil((grade.due - Date.now()) / DAY);
    const stale = grade.evidence !== card.dataset.evidence;
    let when = card.querySelector(".recall-when");
    if (!when) {
      when = element("span", { className: "recall-when" });
      card.querySelector("summary").append(when);
    }
    when.textContent = stale ? say.stale : days > 0 ? say.later(days) : say.due;
  }

  function quantity(text) {
    const written = WRITTEN.exec(text.trim());
    if (!written) return null;
    let digits = written[1].replace(/[\s_'’]/g, "");
    if (digits.includes(",") && digits.includes(".")) {
      const grouping = digits.lastIndexOf(",") < digits.lastIndexOf(".") ? "," : ".";
      digits = digits.replaceAll(grouping, "");
    } else if (GROUPED.test(digits) && digits.split(".").length !== 2) {
      digits = digits.replace(/[,.]/g, "");
    }
    const value = Number(digits.replace(",", "."));
    if (Number.isNaN(value)) return null;
    const bytes = /^(?:([kmgtp])(i?))?b(?:ytes?)?$/i.exec(written[2] || "");
    if (!bytes) return { value, unit: written[2] || "" };
    const power = " kmgtp".indexOf((bytes[1] || " ").toLowerCase());
    return { value: value * (bytes[2] ? 1024 : 1000) ** power, unit: "B" };
  }

  function same(typed, card) {
    const expected = Number(card.dataset.value);
    const bytes = card.dataset.unit === "B";
    if (typed.unit && (typed.unit === "B") !== bytes) return false;
    const largest = Math.max(Math.abs(typed.value), Math.abs(expected));
    return Math.abs(typed.value - expected) <= (bytes ? TOLERANCE : 1e-9) * largest;
  }

  function element(name, properties, ...children) {
    const created = Object.assign(document.createElement(name), properties);
    created.append(...children);
    return created;
  }

  function graded(card) {
    const buttons = say.grades.map((grade, index) =>
      element("button", { type: "button", textContent: grade, onclick: () => keep(card, index) }));
    const row = element("div", { className: "recall-grades" }, ...buttons);
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", say.how);
    card.append(row);
  }

  function asking(card) {
    const input = element("input", { type: "text", autocomplete: "off" });
    input.setAttribute("aria-label", say.typed);
    input.placeholder = say.typed;
    const verdict = element("p", { className: "recall-verdict" });
    verdict.setAttribute("role", "status");
    const form = element("form", { className: "recall-number" }, input,
      element("button", { type: "submit", textContent: say.check }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const typed = quantity(input.value);
      if (input.value.trim() && !typed) {
        verdict.textContent = say.unread;
        return;
      }
      const right = typed && same(typed, card);
      verdict.textContent = typed ? (right ? say.right : say.wrong) : "";
      card.classList.remove("recall-asks"); // what follows the form shows
      if (typed && !right) keep(card, 0);
    });
    card.querySelector("summary").after(form, verdict);
    card.classList.add("recall-asks");
    card.addEventListener("toggle", () => {
      if (card.open) return;
      card.classList.add("recall-asks");
      input.value = verdict.textContent = "";
    });
  }

  for (const card of document.querySelectorAll("details.question[data-recall]")) {
    graded(card);
    if (card.dataset.value) asking(card);
    show(card);
  }
})();

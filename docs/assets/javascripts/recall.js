/* Checks and grades what recall cards ask, and remembers in this browser when to ask again.
 *
 * `shardbook recall` asks the same cards in a terminal, by the same schedule (recall-schedule.js).
 * On the page of today's cards the cards that are due are asked one after another. A worked problem
 * has a field for the reader's answer, which is kept and compared with the folded one. */
(function () {
  "use strict";

  const KEPT = "shardbook.recall"; // an export: every answer that was given in this browser
  const KNOWN = "shardbook.recall.cards"; // the site's cards, with their evidence, for the header
  const PROBLEMS = "shardbook.problems"; // what was typed for worked problems, the same in each language
  const LIMIT = 20; // cards of a sitting, as of `shardbook recall`
  const MINUTE = 60000; // milliseconds
  const DAY = 1440 * MINUTE;
  const { due, quantity, judge, read, write, merge } = window.shardbookRecall;
  const many = (number, one, more) => `${number} ${number === 1 ? one : more}`;
  const SAID = {
    en: {
      grades: ["again", "hard", "good", "easy"], how: "How well did you know it?",
      typed: "Your answer, with its unit", check: "Check", right: "Right.", wrong: "Not that.",
      own: "Your answer", ownKept: "Your answer, kept in this browser",
      has: (found, of) => `Results in bold that your answer has: ${found.length} of ${of}${found.length ? ` (${found.join(", ")})` : ""}.`,
      hints: { small: "It is more.", large: "It is less.", unit: "It has another unit." }, retry: "Try once more.",
      failed: "The answer is below; this card comes again soon.",
      unit: "In which unit? Add it: B, KiB, MiB, GB …",
      unread: "Write a number with its unit: 16 GB, 16 GiB, 16e9 B, 4 ranks.",
      due: "due again", later: (wait) => `again in ${wait}`,
      minutes: (n) => `${n} min`, hours: (n) => `${n} h`, days: (n) => many(n, "day", "days"),
      stale: "stale: the lines it rests on have changed since you answered it",
      header: (n) => `${n} due`, title: "Today's cards",
      counts: (n, fresh) => `${n} due, ${fresh} never asked.`,
      asks: (n) => `This sitting asks ${n}.`, at: (n, of) => `Card ${n} of ${of}`,
      skip: "Skip", following: "Next", more: "Ask more",
      done: (n) => `${many(n, "card", "cards")} answered.`, next: (wait) => `Next in ${wait}.`,
      kept: (n, cards) => `This browser has ${many(n, "answer", "answers")} to ${many(cards, "card", "cards")}.`,
      unkept: "This browser doesn't keep anything here: export the answers before you leave.",
      save: "Export", load: "Import", remove: "Delete", sure: "Delete all answers in this browser?",
      added: (n, of) => `${n} of ${of} answers are new; the others were here.`,
      refused: (name, why) => `${name} can't be imported: ${why}. Nothing was changed.`,
      why: {
        json: (detail) => `it is no JSON (${detail})`,
        format: (detail) => `it has no "format": "${detail}"`,
        version: (detail) => `its version is ${detail}, and this page reads 1`,
        reviews: () => 'it must have "format", "version" and a list of "reviews"',
        answer: (detail) => `answer ${detail} lacks a card, a time with its zone, a grade from 1 to 4 or evidence`,
        future: (detail) => `answer ${detail} is of a day that is still to come`,
        room: () => "this browser has no room for it",
      },
    },
    es: {
      grades: ["otra vez", "difícil", "bien", "fácil"], how: "¿La sabías?",
      typed: "Tu respuesta, con su unidad", check: "Comprobar", right: "Correcto.", wrong: "No es eso.",
      own: "Tu respuesta", ownKept: "Tu respuesta, guardada en este navegador",
      has: (found, of) => `Resultados en negrita que tiene tu respuesta: ${found.length} de ${of}${found.length ? ` (${found.join(", ")})` : ""}.`,
      hints: { small: "Es más.", large: "Es menos.", unit: "Lleva otra unidad." }, retry: "Prueba otra vez.",
      failed: "La respuesta está abajo; esta tarjeta vuelve pronto.",
      unit: "¿En qué unidad? Añádela: B, KiB, MiB, GB …",
      unread: "Escribe un número con su unidad: 16 GB, 16 GiB, 16e9 B, 4 ranks.",
      due: "toca repasarla", later: (wait) => `otra vez en ${wait}`,
      minutes: (n) => `${n} min`, hours: (n) => `${n} h`, days: (n) => many(n, "día", "días"),
      stale: "caducada: las líneas en que se apoya han cambiado desde que la respondiste",
      header: (n) => `${n} para hoy`, title: "Las tarjetas de hoy",
      counts: (n, fresh) => `${n} para hoy, ${fresh} sin preguntar nunca.`,
      asks: (n) => `Esta sesión pregunta ${n}.`, at: (n, of) => `Tarjeta ${n} de ${of}`,
      skip: "Saltar", following: "Siguiente", more: "Preguntar más",
      done: (n) => `${many(n, "tarjeta respondida", "tarjetas respondidas")}.`, next: (wait) => `La próxima, en ${wait}.`,
      kept: (n, cards) => `Este navegador tiene ${many(n, "respuesta", "respuestas")} a ${many(cards, "tarjeta", "tarjetas")}.`,
      unkept: "Este navegador no guarda nada aquí: exporta las respuestas antes de irte.",
      save: "Exportar", load: "Importar", remove: "Borrar", sure: "¿Borrar todas las respuestas de este navegador?",
      added: (n, of) => `${n} de ${of} respuestas son nuevas; las demás ya estaban.`,
      refused: (name, why) => `${name} no se puede importar: ${why}. No ha cambiado nada.`,
      why: {
        json: (detail) => `no es JSON (${detail})`,
        format: (detail) => `no tiene "format": "${detail}"`,
        version: (detail) => `su versión es ${detail}, y esta página lee la 1`,
        reviews: () => 'tiene que tener "format", "version" y una lista "reviews"',
        answer: (detail) => `a la respuesta ${detail} le falta tarjeta, hora con zona, nota de 1 a 4 o evidencia`,
        future: (detail) => `la respuesta ${detail} es de un día que aún no ha llegado`,
        room: () => "este navegador no tiene sitio",
      },
    },
  };
  const say = SAID[document.documentElement.lang] || SAID.en;

  // ---------------------------------------------------------------- what the browser keeps

  let unkept = null; // the answers of a browser that keeps nothing

  function get(name) {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  }

  function set(name, text) {
    try {
      localStorage.setItem(name, text);
      return true;
    } catch {
      return false;
    }
  }

  /* Return the answers that this browser keeps; what can't be read is set aside. */
  function answers() {
    if (unkept) return unkept;
    const text = get(KEPT);
    if (!text) return [];
    try {
      return read(text, Date.now());
    } catch { /* not ours: below */ }
    set(`${KEPT}.corrupt`, text);
    keepAll([]);
    return [];
  }

  function keepAll(reviews) {
    const kept = set(KEPT, write(reviews));
    unkept = kept ? null : reviews;
    return kept;
  }

  function byCard() {
    const found = new Map();
    for (const each of answers()) found.set(each.card, [...(found.get(each.card) || []), each]);
    return found;
  }

  /* Return when a card is due, and whether its lines have changed since the last answer. */
  function state(reviews, evidence) {
    if (!reviews) return { at: Infinity, stale: false, fresh: true, due: false };
    const last = reviews.reduce((a, b) => (Date.parse(b.at) >= Date.parse(a.at) ? b : a));
    const [at, stale] = [due(reviews), last.evidence !== evidence];
    return { at, stale, fresh: false, due: stale || at <= Date.now() };
  }

  function wait(at) {
    const minutes = Math.max(1, Math.round((at - Date.now()) / MINUTE));
    if (minutes < 120) return say.minutes(minutes);
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? say.hours(hours) : say.days(Math.floor(hours / 24));
  }

  function keep(card, grade) {
    const review = {
      card: card.dataset.recall, at: new Date().toISOString(), grade: grade + 1,
      evidence: card.dataset.evidence,
    };
    keepAll(merge(answers(), [review])); // read again: another tab may have written
    show(card);
    showHeader();
    card.dispatchEvent(new CustomEvent("recall-graded", { bubbles: true }));
  }

  function show(card) {
    const now = state(byCard().get(card.dataset.recall), card.dataset.evidence);
    let when = card.querySelector(".recall-when");
    if (now.fresh) {
      if (when) when.remove();
      return;
    }
    if (!when) {
      when = element("span", { className: "recall-when" });
      card.querySelector("summary").append(when);
    }
    when.textContent = now.stale ? say.stale : now.due ? say.due : say.later(wait(now.at));
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

  /* Offer the grades that fit: none after two wrong numbers, the lower two after one. */
  function offer(card, wrongs) {
    const fitting = [[0, 1, 2, 3], [0, 1], []][wrongs];
    card.querySelectorAll(".recall-grades button").forEach((each, index) => {
      each.hidden = !fitting.includes(index);
    });
  }

  function asking(card) {
    let wrongs = 0;
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
      const expected = { value: Number(card.dataset.value), unit: card.dataset.unit };
      const verdictOf = typed ? judge(typed, expected) : "";
      verdict.textContent = typed ? say[verdictOf] : "";
      if (verdictOf === "unit") return; // neither right nor wrong
      if (verdictOf === "wrong") {
        wrongs = Math.min(wrongs + 1, 2);
        if (wrongs === 1) {
          const kind = (typed.unit === "B") !== (expected.unit === "B") ? "unit" : typed.value < expected.value ? "small" : "large";
          verdict.textContent += ` ${say.hints[kind]} ${say.retry}`;
          input.select();
          return;
        }
        verdict.textContent += ` ${say.failed}`;
      }
      offer(card, wrongs);
      card.classList.remove("recall-asks"); // what follows the form shows
      if (verdictOf === "wrong") keep(card, 0);
    });
    card.querySelector("summary").after(form, verdict);
    card.classList.add("recall-asks");
    card.addEventListener("toggle", () => {
      if (card.open) return;
      card.classList.add("recall-asks");
      input.value = verdict.textContent = "";
      wrongs = 0;
    });
  }

  // ---------------------------------------------------------------- worked problems

  const NUMBER = /\d(?:[\d.,]*\d)?(?:e[+-]?\d+)?\s*\p{L}*/giu;
  const SECONDS = { s: 1, ms: 1e-3, µs: 1e-6, μs: 1e-6, us: 1e-6, ns: 1e-9 };

  /* Return the numbers in a text, with times in seconds. */
  function numbers(text) {
    return [...text.matchAll(NUMBER)].map(([number]) => quantity(number)).filter(Boolean).map(({ value, unit }) =>
      (unit in SECONDS ? { value: value * SECONDS[unit], unit: "s" } : { value, unit }));
  }

  /* Whether a result is in what was typed: to three digits, in another unit of bytes or time, or as a text. */
  function holds(typed, result) {
    const bare = (text) => text.replace(/\s/g, "");
    const [expected, ...more] = numbers(result);
    if (!expected || more.length) return bare(typed).includes(bare(result));
    const scaled = (unit) => unit === "B" || unit === "s";
    return numbers(typed).some(({ value, unit }) => Math.abs(value - expected.value) <= 0.005 * expected.value
      && (unit === expected.unit || (!scaled(unit) && !scaled(expected.unit))));
  }

  /* Put a field for the reader's answer before the folded one. */
  function solve(details, number) {
    const { base } = JSON.parse(document.getElementById("__config").textContent);
    const key = `${location.pathname.slice(new URL(base, location.href).pathname.length)}#${number}`;
    const all = () => { try { return JSON.parse(get(PROBLEMS)) || {}; } catch { return {}; } };
    const field = element("textarea", { className: "recall-own", rows: 1, placeholder: say.ownKept, value: all()[key] || "" });
    field.setAttribute("aria-label", `${say.own}, ${number}`);
    const verdict = element("p", { className: "recall-verdict" });
    verdict.setAttribute("role", "status");
    const results = [...details.querySelectorAll("strong")].map((strong) => strong.textContent);
    function compare() {
      const found = results.filter((result) => holds(field.value, result));
      verdict.textContent = details.open && field.value.trim() && results.length ? say.has(found, results.length) : "";
    }
    field.addEventListener("input", () => {
      set(PROBLEMS, JSON.stringify({ ...all(), [key]: field.value || undefined })); // without an empty one
      compare();
    });
    details.addEventListener("toggle", compare);
    details.before(field, verdict);
  }

  // ---------------------------------------------------------------- the header, and today's page

  /* Say in the header how many of the cards that were answered here are due. */
  function showHeader() {
    const header = document.querySelector(".md-header__inner");
    const config = document.getElementById("__config");
    if (!header || !config) return;
    let known = null;
    try {
      known = JSON.parse(get(KNOWN));
    } catch { /* not ours */ }
    let count = 0;
    for (const [card, reviews] of byCard()) {
      if (known && !(card in known)) continue; // the workbook no longer asks it
      const evidence = known ? known[card] : reviews[reviews.length - 1].evidence;
      if (state(reviews, evidence).due) count += 1;
    }
    let link = header.querySelector(".recall-due");
    if (!link && count) {
      const address = `${JSON.parse(config.textContent).base}/cards/`;
      link = element("a", { className: "recall-due", href: address, title: say.title });
      header.querySelector(".md-header__title").after(link);
    }
    if (link) [link.textContent, link.hidden] = [say.header(count), !count];
  }

  function button(text, onclick) {
    return element("button", { type: "button", textContent: text, onclick });
  }

  /* Ask the cards that are due, then new ones, one after another. */
  function sit(section) {
    const items = [...section.querySelectorAll(".recall-item")].map((item) =>
      ({ item, card: item.querySelector("details") })).filter(({ card }) => card);
    const known = items.map(({ card }) => [card.dataset.recall, card.dataset.evidence]);
    set(KNOWN, JSON.stringify(Object.fromEntries(known)));
    const status = element("p", { className: "recall-status" });
    status.setAttribute("role", "status");
    const place = element("span", { className: "recall-place" });
    const skip = button(say.skip, () => next(true));
    const more = button(say.more, start);
    const row = element("div", { className: "recall-grades" }, skip, more);
    section.prepend(status);
    section.append(row);
    let [queue, asked, graded, current] = [[], 0, 0, null];

    function turns() {
      const found = byCard();
      const all = items.map((each) =>
        ({ ...each, ...state(found.get(each.card.dataset.recall), each.card.dataset.evidence) }));
      return all.sort((a, b) => b.stale - a.stale || (a.at === b.at ? 0 : a.at - b.at));
    }

    function start() {
      const all = turns();
      const [ready, fresh] = [all.filter((each) => each.due), all.filter((each) => each.fresh)];
      queue = [...ready, ...fresh].slice(0, LIMIT);
      asked = graded = 0;
      current = null;
      for (const { item } of items) item.hidden = true;
      status.textContent = say.counts(ready.length, fresh.length);
      if (queue.length) status.textContent += ` ${say.asks(queue.length)}`;
      next(false);
    }

    function next(focus) {
      if (current) [current.item.hidden, current.card.open] = [true, false];
      current = queue[asked] || null;
      asked += 1;
      skip.textContent = say.skip;
      skip.hidden = !current;
      more.hidden = Boolean(current) || !turns().some((each) => each.due || each.fresh);
      if (current) {
        current.item.hidden = false;
        place.textContent = `${say.at(asked, queue.length)} · `;
        current.item.querySelector(".recall-from").prepend(place);
        if (focus) current.card.querySelector("summary").focus();
        return;
      }
      const later = turns().filter((each) => !each.due && !each.fresh);
      const wanted = later.length ? ` ${say.next(wait(Math.min(...later.map(({ at }) => at))))}` : "";
      if (queue.length) status.textContent = say.done(graded) + wanted;
      else status.textContent += wanted;
      if (focus && !more.hidden) more.focus();
    }

    // A wrong number is graded at once, while its answer still has to be read.
    section.addEventListener("recall-graded", (event) => {
      if (!current || event.target !== current.card) return;
      graded += 1;
      if (document.activeElement && document.activeElement.closest(".recall-number")) {
        skip.textContent = say.following;
      } else {
        next(true);
      }
    });
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest("input, textarea, [contenteditable]");
      if (typing || event.ctrlKey || event.metaKey || event.altKey || !current) return;
      const hidden = current.card.classList.contains("recall-asks"); // a number must come first
      const grades = current.card.querySelectorAll(".recall-grades button:not([hidden])");
      const names = [...grades].map((each) => each.textContent);
      if (current.card.open && !hidden && names.includes(say.grades[event.key - 1])) keep(current.card, event.key - 1);
    });
    section.addEventListener("recall-changed", start);
    start();
  }

  /* Show what this browser keeps, with what exports, imports and deletes it. */
  function manage(section) {
    const holds = element("p", {});
    const message = element("p", { className: "recall-verdict" });
    message.setAttribute("role", "status");
    const file = element("input", { type: "file", accept: ".json,application/json", hidden: true });
    const buttons = element("div", { className: "recall-grades" },
      button(say.save, save), button(say.load, () => file.click()), button(say.remove, remove));
    section.after(element("div", { className: "recall-answers" }, holds, buttons, file, message));

    function count() {
      const all = answers();
      const cards = new Set(all.map(({ card }) => card)).size;
      holds.textContent = say.kept(all.length, cards) + (unkept ? ` ${say.unkept}` : "");
    }

    function save() {
      const address = URL.createObjectURL(new Blob([`${write(answers(), 1)}\n`], { type: "application/json" }));
      element("a", { href: address, download: "shardbook-recall.json" }).click();
      setTimeout(() => URL.revokeObjectURL(address), MINUTE);
    }

    function changed(text) {
      message.textContent = text;
      count();
      showHeader();
      for (const card of section.querySelectorAll("details.question")) show(card);
      section.dispatchEvent(new CustomEvent("recall-changed"));
    }

    file.addEventListener("change", async () => {
      const [chosen] = file.files;
      if (!chosen) return;
      try {
        const [there, here] = [read(await chosen.text(), Date.now()), answers()];
        const all = merge(here, there);
        const old = get(KEPT);
        if (!unkept && !set(KEPT, write(all))) {
          if (old) set(KEPT, old);
          throw Object.assign(new Error(), { reason: "room" });
        }
        if (unkept) unkept = all;
        changed(say.added(all.length - here.length, there.length));
      } catch (error) {
        const why = say.why[error.reason] || (() => error.message);
        message.textContent = say.refused(chosen.name, why(error.detail));
      }
      file.value = "";
    });

    function remove() {
      if (!window.confirm(say.sure)) return;
      try {
        localStorage.removeItem(KEPT);
      } catch { /* nothing is kept */ }
      unkept = unkept && [];
      changed("");
    }

    section.addEventListener("recall-graded", count);
    count();
  }

  for (const card of document.querySelectorAll("details.question[data-recall]")) {
    graded(card);
    if (card.dataset.value) asking(card);
    show(card);
  }
  for (const details of document.querySelectorAll("details.example")) {
    const [, number] = /^\S+ (\d+)$/.exec(details.querySelector("summary").textContent.trim()) || [];
    if (number) solve(details, number);
  }
  const today = document.getElementById("recall-sitting");
  if (today) {
    manage(today);
    sit(today);
  }
  showHeader();
})();

/* On paper, a path or a name breaks behind a stroke, a dot or an underscore. What a page folds (answers, hints,
 * recall cards) follows at its end, under its own title, so that nobody reads an answer below its question. */
(function () {
  "use strict";

  const SAID = { en: "Answers and hints", es: "Respuestas y pistas" };
  const FOLDED = ".md-content details:is(.answers, .example, .note, .question, .tip)";
  const ASKS = "summary, .recall-number, .recall-verdict, .recall-grades"; // what a reader types into
  let section = null;
  let places = [];

  function element(name, ...children) {
    const created = document.createElement(name);
    created.append(...children);
    return created;
  }

  function title(details) {
    const words = details.querySelector("summary").cloneNode(true);
    for (const part of words.querySelectorAll(".recall-when")) part.remove();
    return element("p", element("strong", ...words.childNodes));
  }

  function* texts(root) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) yield walker.currentNode;
  }

  window.addEventListener("beforeprint", () => {
    for (const code of document.querySelectorAll(".md-content :not(pre) > code:not(:has(wbr))")) {
      for (const text of [...texts(code)]) {
        const pieces = text.data.split(/(?<=[/_.])(?=\w)/);
        text.replaceWith(...pieces.flatMap((piece, number) => (number ? [document.createElement("wbr"), piece] : [piece])));
      }
    }
  });

  window.addEventListener("beforeprint", () => {
    const folded = [...document.querySelectorAll(FOLDED)]
      .filter((details) => !details.parentElement.closest("details") && details.checkVisibility());
    if (section || !folded.length) return;
    section = element("section", element("h2", SAID[document.documentElement.lang] || SAID.en));
    section.className = "paper-answers";
    for (const details of folded) {
      const place = document.createComment("");
      const body = [...details.children].filter((child) => !child.matches(ASKS));
      if (!body.length) continue;
      body[0].before(place);
      places.push([place, body]);
      section.append(title(details), ...body);
    }
    folded[0].closest("article").append(section);
  });

  window.addEventListener("afterprint", () => {
    for (const wbr of document.querySelectorAll(".md-content :not(pre) > code wbr")) {
      const code = wbr.parentElement;
      wbr.remove();
      code.normalize();
    }
    for (const [place, body] of places) place.replaceWith(...body);
    section?.remove();
    [section, places] = [null, []];
  });
})();

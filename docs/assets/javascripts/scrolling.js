/* What is wider than its place scrolls by itself. The keyboard must be able to reach it, its edges
 * say that there is more, and on a desk it may use the column of the contents. */
(function () {
  "use strict";

  const WIDE =
    ".md-typeset pre > code, .md-typeset__scrollwrap:not(.play-scroll *), div.mermaid, div.formula, " +
    ".md-typeset p:has(> img), .play-scroll";
  const WIDENED = ".md-typeset__scrollwrap, pre";
  const TABLES = ".md-typeset__scrollwrap:not(.play-scroll *)";
  const SENTENCE_NAMES = ".md-content code:not(pre *, td *, th *, .citation *, :has(wbr))";
  const telephone = matchMedia("(max-width: 44.984375em)");
  const SPANISH = document.documentElement.lang === "es";
  // A frame of its own keeps what is in it.
  const FRAMES = "details, li, figure, .admonition, .citation-card, .claims, [data-md-component=toc]";

  const hidden = (element) => element.scrollWidth - element.clientWidth;

  function readEdges(element) {
    const end = hidden(element) - element.scrollLeft > 1;
    return [element.scrollLeft > 1 && "start", end && "end"].filter(Boolean).join(" ");
  }

  /* How many columns of a table end beyond its edge; while the last one is in sight the line stays empty. */
  function nameColumns(element) {
    const edge = element.getBoundingClientRect().right;
    const heads = [...element.querySelectorAll("thead th")];
    const beyond = heads.filter((head) => head.getBoundingClientRect().right > edge + 1).length;
    if (SPANISH) return beyond > 1 ? `${beyond} columnas más →` : beyond ? "1 columna más →" : "\u00a0";
    return beyond > 1 ? `${beyond} more columns →` : beyond ? "1 more column →" : "\u00a0";
  }

  function showEdges(element, more, columns) {
    if (more) element.dataset.more = more;
    else delete element.dataset.more;
    if (more && columns) element.dataset.columns = columns;
    else delete element.dataset.columns;
  }

  const readColumns = (element) => element.matches(TABLES) && nameColumns(element);

  /* On a telephone a table that lacks less than a sixth of its width is made to fit. */
  function tighten(root) {
    const tables = [...root.querySelectorAll(TABLES)];
    for (const table of tables) delete table.dataset.tight;
    if (!telephone.matches) return;
    const near = tables.filter((table) => hidden(table) > 1 && hidden(table) < table.clientWidth / 6);
    for (const table of near) table.dataset.tight = "";
    for (const table of near.filter((one) => hidden(one) > 1)) delete table.dataset.tight;
  }

  function widen(elements) {
    const blocks = elements.map((element) => [element, element.closest(WIDENED)])
      .filter(([, block]) => block && !block.closest(FRAMES));
    for (const [, block] of blocks) delete block.dataset.wide;
    const widths = blocks.map(([element, block]) => // the margin of a table is below 0
      [block, hidden(element), parseFloat(getComputedStyle(block).marginRight)]);
    for (const [block, lacks, margin] of widths) {
      if (lacks <= 1) continue;
      block.style.setProperty("--wide", `${lacks - margin}px`);
      block.dataset.wide = "";
    }
  }

  /* On a telephone a name that doesn't fit, in a table or in a sentence, breaks behind a stroke, a dot or an
   * underscore, and a citation between its file and its lines. */
  function breakNames(root) {
    const cut = [...root.querySelectorAll(TABLES)].filter((table) => hidden(table) > 1);
    const names = cut.flatMap((table) => [...table.querySelectorAll("code:not(:has(wbr))")]);
    const long = [...root.querySelectorAll(SENTENCE_NAMES)].filter((name) => name.getClientRects().length > 1);
    for (const name of [...names, ...long]) {
      const file = name.querySelector(".citation-file");
      const walker = document.createTreeWalker(file || name, NodeFilter.SHOW_TEXT);
      const texts = [];
      while (walker.nextNode()) texts.push(walker.currentNode);
      for (const text of texts) {
        const pieces = text.data.split(/(?<=[^\W_]["\])]*[/_.])(?=[^\W_])(?!py\b)/);
        text.replaceWith(...pieces.flatMap((piece, number) =>
          number ? [document.createElement("wbr"), piece] : [piece]));
      }
      file?.append(document.createElement("wbr"));
    }
  }

  /* All blocks are measured before one is changed: otherwise the browser lays the page out for each. */
  function mark({ target }) {
    const part = target.matches?.("figure") ? target : document;
    const elements = [...part.querySelectorAll(WIDE)];
    if (telephone.matches) breakNames(part);
    tighten(part);
    widen(elements);
    const states = elements.map((element) =>
      [element, hidden(element) > 0, readEdges(element), readColumns(element)]);
    for (const [element, isCut, more, columns] of states) {
      if (isCut) element.tabIndex = 0;
      else element.removeAttribute("tabindex");
      showEdges(element, more, columns);
    }
  }

  for (const event of ["load", "resize", "diagrams-drawn"]) window.addEventListener(event, mark);
  let next = 0;
  document.addEventListener("drawn", ({ target }) => { // a figure, whose control was turned
    cancelAnimationFrame(next);
    next = requestAnimationFrame(() => mark({ target }));
  });
  document.addEventListener("toggle", mark, true); // a folded part has no width until it is opened
  document.addEventListener("scroll", ({ target }) => {
    if (target !== document && target.matches(WIDE)) showEdges(target, readEdges(target), readColumns(target));
  }, { capture: true, passive: true });
})();

/* What is wider than its place scrolls by itself. The keyboard must be able to reach it, its edges
 * say that there is more, and on a desk it may use the column of the contents. */
(function () {
  "use strict";

  const WIDE =
    ".md-typeset pre > code, .md-typeset__scrollwrap:not(.play-scroll *), div.mermaid, div.formula, " +
    ".md-typeset p:has(> img), .play-scroll";
  const WIDENED = ".md-typeset__scrollwrap, pre";
  // A frame of its own keeps what is in it.
  const FRAMES = "details, li, figure, .admonition, .citation-card, .claims, [data-md-component=toc]";

  const hidden = (element) => element.scrollWidth - element.clientWidth;

  function showEdges(element) {
    const end = hidden(element) - element.scrollLeft > 1;
    const more = [element.scrollLeft > 1 && "start", end && "end"].filter(Boolean).join(" ");
    if (more) element.dataset.more = more;
    else delete element.dataset.more;
  }

  function widen(element) {
    const block = element.closest(WIDENED);
    if (!block || block.closest(FRAMES)) return;
    delete block.dataset.wide;
    const lacks = hidden(element);
    if (lacks <= 1) return;
    const margin = parseFloat(getComputedStyle(block).marginRight); // a table's is below 0
    block.style.setProperty("--wide", `${lacks - margin}px`);
    block.dataset.wide = "";
  }

  function mark({ target }) {
    const part = target.matches?.("figure") ? target : document;
    for (const element of part.querySelectorAll(WIDE)) {
      widen(element);
      if (hidden(element) > 0) element.tabIndex = 0;
      else element.removeAttribute("tabindex");
      showEdges(element);
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
    if (target !== document && target.matches(WIDE)) showEdges(target);
  }, { capture: true, passive: true });
})();

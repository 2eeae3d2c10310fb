/* What is wider than its place scrolls by itself; the keyboard must be able to reach it. */
(function () {
  "use strict";

  const WIDE =
    ".md-typeset pre > code, .md-typeset__scrollwrap:not(.play-scroll *), div.mermaid, div.formula, " +
    ".md-typeset p:has(> img)";

  function mark() {
    for (const element of document.querySelectorAll(WIDE)) {
      if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
      else element.removeAttribute("tabindex");
    }
  }

  window.addEventListener("load", mark);
  window.addEventListener("resize", mark);
  window.addEventListener("diagrams-drawn", mark);
})();

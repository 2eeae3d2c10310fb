/* Draws the page's diagrams with the site's own mermaid, in the colours of the palette, and again
 * when the palette changes. A diagram that does not parse shows why, in its place. */
(function () {
  "use strict";

  // What a diagram may not set for itself: mermaid's own list, and styles beyond its own elements.
  const SECURE = [
    "secure", "securityLevel", "startOnLoad", "maxTextSize", "suppressErrorRendering", "maxEdges",
    "themeCSS",
  ];
  const diagrams = [];
  let drawing = Promise.resolve();

  function begin() {
    for (const element of document.querySelectorAll("div.mermaid")) {
      diagrams.push({ element, text: element.textContent });
    }
    if (!diagrams.length) return; // and no mermaid on this page
    draw();
    const palette = new MutationObserver(draw);
    palette.observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  }

  function draw() {
    drawing = drawing.then(all);
  }

  async function all() {
    const theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "neutral";
    window.mermaid.initialize({
      startOnLoad: false,
      securityLevel: "strict",
      secure: SECURE,
      suppressErrorRendering: true,
      theme,
      // Its dark theme's own ground is too light for the letters on it (4.4 to 1).
      themeVariables: theme === "dark" ? { edgeLabelBackground: "#444444" } : {},
    });
    for (const [number, { element, text }] of diagrams.entries()) {
      try {
        const { svg } = await window.mermaid.render(`diagram-${number}`, text);
        element.innerHTML = svg; // made by mermaid, which escapes labels under "strict"
        element.removeAttribute("data-error");
      } catch (error) {
        const shown = document.createElement("pre");
        shown.textContent = `${error.message || error}\n\n${text}`;
        element.replaceChildren(shown);
        element.setAttribute("data-error", "");
      }
    }
    document.documentElement.dataset.diagrams = theme; // all of them stand there, in its colours
  }

  window.addEventListener("load", begin);
})();

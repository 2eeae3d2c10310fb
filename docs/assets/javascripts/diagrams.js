/* Draws the diagrams that the page doesn't bring as drawings, with the site's own mermaid, which it
 * loads once such a diagram nears the window. It draws in the colours of the palette and at the width
 * of their place, and again when either changes. A diagram that does not parse shows why, in its
 * place. */
(function () {
  "use strict";

  // What a diagram may not set for itself: mermaid's own list, and styles beyond its own elements.
  const SECURE = [
    "secure", "securityLevel", "startOnLoad", "maxTextSize", "suppressErrorRendering", "maxEdges",
    "themeCSS",
  ];
  const LEGIBLE = 11; // px: the smallest letter that a diagram may be shrunk to
  // A gantt's title and axis, for which mermaid has no setting: the one too wide for a telephone, the
  // other too small for anybody, its lines too dark for the words between them.
  const GANTT = `
    .titleText, .grid .tick text { font-size: 13px; }
    .grid .tick line { opacity: 0.4; }
    .task0, .active0 { fill: var(--sent-soft); stroke: var(--sent); }
    .task1, .active1 { fill: var(--forward-soft); stroke: var(--forward); }
    .taskText, .taskText0, .taskText1, .taskTextOutsideLeft, .taskTextOutsideRight {
      fill: var(--md-default-fg-color) !important;
    }`;
  // In the colours of meanings.css, as the kept drawings are. A diagram says which is which:
  // `row["FFN down: row"]:::own`, `sum(["all-reduce"]):::sent`.
  const PARTS = `
    .node.own :is(rect, path, polygon) { fill: var(--own-soft); stroke: var(--own); }
    .node.sent :is(rect, path, polygon) { fill: var(--sent-soft); stroke: var(--sent); stroke-width: 2px; }
    .node.partial :is(rect, path, polygon) { fill: var(--partial-soft); stroke: var(--partial); }
    .node.rank0 :is(rect, path, polygon) { fill: var(--own-soft); stroke: var(--own); }
    .node.rank1 :is(rect, path, polygon) { fill: var(--rank-1-soft); stroke: var(--rank-1); }
    .node.tensor :is(rect, path, polygon) { fill: var(--axis-tensor); }
    .node.context :is(rect, path, polygon) { fill: var(--axis-context); }
    .node.data :is(rect, path, polygon) { fill: var(--axis-data); }
    .node.pipeline :is(rect, path, polygon) { fill: var(--axis-pipeline); }
    .node:is(.tensor, .context, .data, .pipeline) .nodeLabel { color: var(--md-default-bg-color); }
    .node:is(.own, .sent, .partial, .rank0, .rank1) .nodeLabel { color: var(--md-default-fg-color); }
    .node.sent .nodeLabel { font-weight: 700; }`;
  // What lies below words in the dark, in the page's own blue; of mermaid's, two are too pale for
  // WCAG's 4.5 : 1, and the others are olive.
  const DARKER = {
    edgeLabelBackground: "#303238", noteBkgColor: "#303238", mainBkg: "#1b222d",
    actorBkg: "#1b222d", clusterBkg: "#161c25", sectionBkgColor: "#232b38", altSectionBkgColor: "#161c25",
  };
  const SVG = "http://www.w3.org/2000/svg";
  const ACTS = "script, iframe, object, embed, form, input, button, select, textarea, link, meta, base, animate, set";
  const LEADS = new Set(["href", "xlink:href", "src", "srcset", "action", "formaction", "ping", "target"]);
  const diagrams = [];
  let drawing = Promise.resolve();

  function begin() {
    for (const element of document.querySelectorAll("div.mermaid:not(.drawn)")) {
      diagrams.push({ element, text: element.textContent, width: 0 });
    }
    if (!diagrams.length) return; // and no mermaid on this page
    const near = new IntersectionObserver((entries) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      near.disconnect();
      load();
    }, { rootMargin: "100%" });
    for (const { element } of diagrams) near.observe(element);
  }

  function load() {
    const script = document.createElement("script");
    script.src = document.querySelector("template[data-mermaid]").dataset.mermaid;
    script.onload = loaded;
    document.body.append(script);
  }

  function loaded() {
    window.mermaid.initialize({ startOnLoad: false }); // or it would draw by itself
    draw();
    const palette = new MutationObserver(draw);
    palette.observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
    const sizes = new ResizeObserver(resized);
    for (const { element } of diagrams) sizes.observe(element);
  }

  // A diagram's height changes when it is drawn; in a folded part it has no width until opened.
  function resized() {
    const otherwise = ({ element, width }) => element.clientWidth && element.clientWidth !== width;
    if (diagrams.some(otherwise)) draw();
  }

  function draw() {
    for (const diagram of diagrams) diagram.width = diagram.element.clientWidth;
    drawing = drawing.then(all);
  }

  function settings(theme, width) {
    return {
      startOnLoad: false,
      securityLevel: "strict",
      secure: SECURE,
      suppressErrorRendering: true,
      theme,
      themeVariables: theme === "dark" ? DARKER : {},
      themeCSS: GANTT + PARTS,
      // Close together: what is narrow needs no shrinking on a telephone.
      flowchart: {
        nodeSpacing: 28,
        rankSpacing: 32,
        padding: 10,
        wrappingWidth: 170,
        subGraphTitleMargin: { top: 4, bottom: 14 },
      },
      sequence: { width: 76, actorMargin: 28, diagramMarginX: 8, height: 44 },
      gantt: {
        useWidth: width || undefined,
        fontSize: 12,
        sectionFontSize: 12,
        leftPadding: 100,
        rightPadding: 16,
      },
    };
  }

  async function all() {
    const theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "neutral";
    for (const [number, { element, text, width }] of diagrams.entries()) {
      try {
        window.mermaid.initialize(settings(theme, width));
        const { svg } = await window.mermaid.render(`diagram-${number}`, text);
        element.replaceChildren(pictureOnly(svg));
        keepLegible(element.querySelector("svg"));
        element.removeAttribute("data-error");
      } catch (error) {
        window.mermaid.mermaidAPI.reset(); // or what this diagram set stays for the next ones
        const shown = document.createElement("pre");
        shown.textContent = `${error.message || error}\n\n${text}`;
        element.replaceChildren(shown);
        element.setAttribute("data-error", "");
      }
    }
    document.documentElement.dataset.diagrams = theme; // all of them stand there, in its colours
    window.dispatchEvent(new Event("diagrams-drawn")); // for scrolling.js
  }

  /* A diagram is a picture: no statement or label of it leads anywhere, loads or runs. */
  function pictureOnly(svg) {
    const { content } = Object.assign(document.createElement("template"), { innerHTML: svg });
    for (const element of content.querySelectorAll(ACTS)) element.remove();
    for (const link of content.querySelectorAll("a")) {
      const group = document.createElementNS(link.namespaceURI, link.namespaceURI === SVG ? "g" : "span");
      for (const { name, value } of link.attributes) group.setAttribute(name, value);
      group.replaceChildren(...link.childNodes);
      link.replaceWith(group);
    }
    for (const element of content.querySelectorAll("*")) {
      for (const { name, value } of [...element.attributes]) {
        const leads = LEADS.has(name) && !value.startsWith("#");
        if (leads || name.startsWith("on")) element.removeAttribute(name);
      }
    }
    return content;
  }

  /* Shrinking ends where the smallest letter would no longer be read; from there on it scrolls. */
  function keepLegible(svg) {
    const written = [...svg.querySelectorAll("text, tspan, foreignObject *")].filter(
      (element) => !element.children.length && element.textContent.trim(),
    );
    const sizes = written.map((element) => parseFloat(getComputedStyle(element).fontSize));
    const scale = Math.min(1, LEGIBLE / Math.min(...sizes, Infinity));
    svg.style.minWidth = `${Math.ceil(svg.viewBox.baseVal.width * scale)}px`;
  }

  window.addEventListener("load", begin);
})();

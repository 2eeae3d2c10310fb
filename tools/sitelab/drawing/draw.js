/* Draws one diagram with mermaid, for `python -m pages diagrams`: returns the drawing as an SVG that
 * has no style of its own, and its words. docs/assets/stylesheets/diagrams.css colours it. */
async (source) => {
  "use strict";

  const FONT = "DejaVu Sans, Verdana, sans-serif"; // diagrams.css shows the letters in it
  const LEGIBLE = 11; // px: the smallest letter that a drawing may be shrunk to
  const SIDE = 12; // px: from a group's title to its frame
  const GROWS = 1.5; // a gantt is drawn for a telephone, and grows on a desk
  const TAGS = new Set(["svg", "g", "path", "rect", "circle", "line", "polygon", "text", "tspan", "marker", "defs"]);
  const NUMBERS = ["x", "y", "width", "height", "rx", "ry", "cx", "cy", "r", "x1", "x2", "y1", "y2", "d",
    "points", "transform", "viewBox"];
  const WORDS = ["xmlns", "dx", "dy", "text-anchor", "dominant-baseline", "font-size", "marker-start", "marker-end",
    "refX", "refY", "markerUnits", "markerWidth", "markerHeight", "orient"];
  const CLASSES = /^(node|own|sent|partial|rank0|rank1|tensor|context|data|pipeline|backward|cluster|cluster-label|label|edgeLabel|background|flowchart-link|edge-pattern-dotted|arrowMarkerPath|grid|domain|tick|section\d?|sectionTitle|task\d?|active\d|milestone|taskText\w*|titleText|actor|actor-line|actor-box|messageLine\d|messageText|note|noteText)$/;

  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    suppressErrorRendering: true,
    theme: "neutral",
    fontFamily: FONT,
    htmlLabels: false,
    // Close together: what is narrow needs no shrinking on a telephone.
    flowchart: {
      htmlLabels: false, nodeSpacing: 18, rankSpacing: 32, padding: 10, wrappingWidth: 170,
      subGraphTitleMargin: { top: 4, bottom: 14 },
    },
    sequence: {
      width: 64, actorMargin: 24, diagramMarginX: 4, height: 40, mirrorActors: false,
      actorFontFamily: FONT, messageFontFamily: FONT, noteFontFamily: FONT,
    },
    gantt: { useWidth: 356, fontSize: 12, sectionFontSize: 12, leftPadding: 108, rightPadding: 16 },
    themeCSS: ".titleText { font-size: 11px; } .grid .tick text { font-size: 12px; }",
  });
  const { db, type } = await mermaid.mermaidAPI.getDiagramFromText(source);
  const words = describe();
  const host = document.body.appendChild(document.createElement("div"));
  host.innerHTML = (await mermaid.render("drawn", source)).svg;
  const svg = host.firstElementChild;
  clean(svg);
  const drawn = svg.outerHTML.replace(/>\s+</g, "><");
  host.remove();
  return { words, svg: drawn };

  /* Keeps what draws, in short numbers; measures before anything is taken away. */
  function clean(svg) {
    const texts = [...svg.querySelectorAll("text")];
    const sizes = new Map(texts.map((text) => [text, parseFloat(getComputedStyle(text).fontSize)]));
    const anchors = new Map(texts.map((text) => [text, getComputedStyle(text).textAnchor]));
    const kind = svg.getAttribute("aria-roledescription");
    const [x, y, width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    roundShapes(svg);
    const wider = widenGroups(svg);
    giveMeanings(svg);
    for (const { id, classes = [] } of db.getEdges?.() || []) {
      svg.querySelector(`path[data-id="${CSS.escape(id)}"]`)?.classList.add(...classes);
    }
    for (const row of svg.querySelectorAll("tspan.row")) row.textContent = row.textContent.trim();
    const used = new Set(svg.innerHTML.match(/(?<=url\(#)[\w-]+/g));
    for (const element of [...svg.querySelectorAll("*")]) {
      // A group without a title is a row, and has no frame.
      const unused = element.matches(".cluster") ? !element.textContent.trim() : element.localName === "marker" && !used.has(element.id);
      if (!TAGS.has(element.localName) || unused) element.remove();
    }
    const names = new Map([...used].map((id, number) => [id, `ID-${number}`]));
    for (const element of [svg, ...svg.querySelectorAll("*")]) {
      const { id } = element;
      if (/thickness-invisible/.test(element.getAttribute("class"))) element.remove();
      const classes = [...element.classList].filter((name) => CLASSES.test(name)).join(" ");
      for (const { name, value } of [...element.attributes]) {
        if (NUMBERS.includes(name)) element.setAttribute(name, short(value));
        else if (!WORDS.includes(name)) element.removeAttribute(name);
      }
      if (classes) element.setAttribute("class", classes);
      if (names.has(id)) element.id = names.get(id);
      for (const name of ["marker-start", "marker-end"]) {
        const to = /#([\w-]+)/.exec(element.getAttribute(name) || "");
        if (to) element.setAttribute(name, `url(#${names.get(to[1])})`);
      }
    }
    for (const text of texts) {
      text.setAttribute("text-anchor", anchors.get(text));
      text.setAttribute("font-size", sizes.get(text));
      for (const row of text.querySelectorAll("tspan")) row.removeAttribute("text-anchor");
    }
    removeEmpty(svg);
    const smallest = Math.min(...sizes.values());
    const widest = (width + 2 * wider) * (kind === "gantt" ? GROWS : 1);
    svg.setAttribute("viewBox", short([x - wider, y, width + 2 * wider, height].join(" ")));
    svg.removeAttribute("width");
    svg.setAttribute("data-kind", type.replace(/-.*/, ""));
    svg.setAttribute("style", `width: ${Math.ceil(widest)}px; min-width: ${Math.ceil(((width + 2 * wider) * LEGIBLE) / smallest)}px`);
  }

  /* A sequence and a gantt have no classes: `%% partial: 10, 10 + 100` names what has this meaning. Its
   * words get the class, and the box that they are in. */
  function giveMeanings(svg) {
    const meanings = new Map([...source.matchAll(/^\s*%% (own|partial|backward): (.+)$/gm)].flatMap(
      ([, meaning, names]) => names.split(", ").map((name) => [name, meaning])));
    const bars = [...svg.querySelectorAll("rect.task")];
    const tasks = [...svg.querySelectorAll("text[class*=taskText]")];
    for (const text of svg.querySelectorAll("text")) {
      const meaning = meanings.get(text.textContent.trim());
      if (!meaning) continue;
      const box = bars[tasks.indexOf(text)] || text.previousElementSibling;
      for (const part of box?.matches("rect") ? [text, box] : [text]) part.classList.add(meaning);
    }
  }

  /* A stadium is drawn as a hundred points; a rectangle with round ends is the same. */
  function roundShapes(svg) {
    for (const outline of svg.querySelectorAll("g.node > g:has(> path)")) {
      const box = outline.getBBox();
      const rect = document.createElementNS(svg.namespaceURI, "rect");
      for (const side of ["x", "y", "width", "height"]) rect.setAttribute(side, box[side]);
      rect.setAttribute("rx", box.height / 2);
      const { transform } = outline.attributes;
      if (transform) rect.setAttribute("transform", transform.value);
      outline.replaceWith(rect);
    }
  }

  /* A group's title has room on both sides; returns how much wider than before a group may be. */
  function widenGroups(svg) {
    let most = 0;
    for (const group of svg.querySelectorAll(".cluster")) {
      const [frame, title] = ["rect", ".cluster-label"].map((part) => group.querySelector(part));
      const missing = (title.getBBox().width + 2 * SIDE - Number(frame.getAttribute("width"))) / 2;
      if (!group.textContent.trim() || missing <= 0) continue;
      frame.setAttribute("x", frame.getAttribute("x") - missing);
      frame.setAttribute("width", Number(frame.getAttribute("width")) + 2 * missing);
      most = Math.max(most, missing);
    }
    return most;
  }

  function removeEmpty(svg) {
    for (const element of [...svg.querySelectorAll("g, defs, text, tspan, rect")].reverse()) {
      const nothing = element.localName === "rect" ? !Number(element.getAttribute("width")) : !element.childNodes.length;
      if (nothing) element.remove();
      else if (element.localName === "g" && !element.attributes.length) element.replaceWith(...element.childNodes);
    }
  }

  function short(numbers) {
    return numbers.replace(/-?\d*\.\d+/g, (number) => String(Math.round(10 * number) / 10));
  }

  /* What the diagram says, line by line. */
  function describe() {
    const plain = (text) => text.replace(/<br\s*\/?>/g, " ").replace(/\s+/g, " ").trim();
    const lines = [];
    if (type.startsWith("flowchart")) {
      const vertices = db.getVertices();
      const groups = new Map(db.getSubGraphs().map((group) => [group.id, group]));
      // A group without a title has the name of its first node.
      const node = (id) => [...vertices.keys()].find((key) => key === id || groups.get(id)?.nodes.includes(key));
      const name = (id) => plain(groups.get(id)?.title.trim() || vertices.get(node(id))?.text || id);
      for (const { title, nodes } of [...groups.values()].filter((group) => group.title.trim())) {
        lines.push(`${plain(title)}: ${[...vertices.keys()].filter((id) => nodes.includes(id)).map(name).join(", ")}`);
      }
      for (const { start, end, text, type, stroke } of db.getEdges()) {
        const arrow = type.startsWith("double") ? "↔" : "→";
        if (stroke !== "invisible") lines.push(`${name(start)} ${arrow} ${name(end)}${text ? `: ${plain(text)}` : ""}`);
      }
    } else if (type === "sequence") {
      const name = (id) => plain(db.getActor(id).description);
      for (const { from, to, message, placement } of db.getMessages()) {
        const way = placement === undefined ? `${name(from)} → ${name(to)}: ` : "";
        lines.push(way + plain(message));
      }
    } else if (type === "gantt") {
      lines.push(plain(db.getDiagramTitle()));
      for (const { section, task, startTime, endTime } of db.getTasks()) {
        lines.push(`${section}: ${task.trim()}, ${+startTime}–${+endTime}`);
      }
    } else {
      throw new Error(`no words for a diagram of type ${type}: write them in draw.js`);
    }
    return lines.filter(Boolean).join("; ");
  }
}

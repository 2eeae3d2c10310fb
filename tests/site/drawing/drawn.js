/* What stands in a drawn diagram, in pixels of the screen from the drawing's corner, for a test to
 * compare with its source. */
(element) => {
  const svg = element.querySelector("svg");
  const all = (selector) => [...svg.querySelectorAll(selector)];
  const byHeight = (found) => found.sort((one, other) => one.middle - other.middle);

  function box(drawn) {
    const corner = svg.getBoundingClientRect();
    const { x, y, width, height } = drawn.getBoundingClientRect();
    const [left, top] = [x - corner.x, y - corner.y];
    const [right, bottom] = [left + width, top + height];
    return { left, right, top, bottom, centre: left + width / 2, middle: top + height / 2 };
  }
  const worded = (drawn) => ({ text: drawn.textContent.trim(), ...box(drawn) });

  const channels = (colour) => (colour.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  function luminance(colour) {
    const [red, green, blue] = colour.map((value) =>
      value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4,
    );
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }

  // The colours below a letter, from the page's up, each as opaque as it is.
  function paper(letter) {
    const layers = [];
    letter.scrollIntoView({ block: "center" }); // elementsFromPoint sees what is in view
    const { x, y, height } = letter.getBoundingClientRect();
    for (const below of document.elementsFromPoint(x + 1, y + height / 2)) {
      if (letter.contains(below) || below === letter.closest("text")) continue; // the letter itself
      const style = getComputedStyle(below);
      const shape = below instanceof SVGGeometryElement;
      if (below instanceof SVGElement && (!shape || style.fill === "none")) continue;
      const [red, green, blue, alpha = 1] = channels(shape ? style.fill : style.backgroundColor);
      layers.unshift({ colour: [red, green, blue], alpha: shape ? alpha * style.opacity : alpha });
    }
    return layers.reduce(
      (under, { colour, alpha }) => under.map((value, i) => value * (1 - alpha) + colour[i] * alpha),
      [255, 255, 255],
    );
  }

  function letters(written) {
    const style = getComputedStyle(written);
    const place = box(written);
    const holder = written.closest("text, foreignObject");
    const ink = channels(holder.localName === "text" ? style.fill : style.color).slice(0, 3);
    const [brighter, darker] = [luminance(ink), luminance(paper(written))].sort((a, b) => b - a);
    const { a, b } = holder.getScreenCTM();
    return {
      text: written.textContent.trim(),
      ...place,
      height: Math.hypot(a, b) * parseFloat(style.fontSize),
      contrast: (brighter + 0.05) / (darker + 0.05),
      cut: Math.max(-place.left, place.right - svg.getBoundingClientRect().width, 0),
    };
  }

  const written = all("text, tspan, foreignObject *").filter(
    (one) => !one.children.length && one.textContent.trim(),
  );
  return {
    kind: svg.dataset.kind,
    width: svg.getBoundingClientRect().width,
    room: element.clientWidth,
    letters: written.map(letters),
    sections: all(".sectionTitle").map(worded),
    ticks: all(".grid .tick").map((tick) => ({
      text: tick.textContent,
      centre: box(tick.querySelector("line")).centre,
    })),
    bars: byHeight(all("rect.task").map((bar) => ({
      ...box(bar), point: bar.classList.contains("milestone"),
    }))),
    names: byHeight(all("text[class*='taskText']").map(worded)),
    actors: all("text.actor-box").map(worded),
    messages: byHeight(all("line[class^='messageLine'], path[class^='messageLine']").map((line) => {
      const { left, right, middle } = box(line);
      const forth = line.x1.baseVal.value < line.x2.baseVal.value;
      return { middle, from: forth ? left : right, to: forth ? right : left };
    })),
    words: byHeight(all("text.messageText").map(worded)),
  };
}

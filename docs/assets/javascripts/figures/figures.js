/* What every figure to play with has: its data, read from the page, and the controls they ask for.
 * A figure's own script draws; tools/sitelab/figures has drawn its first picture. */
(function () {
  "use strict";

  function element(name, properties, ...children) {
    const created = Object.assign(document.createElement(name), properties);
    created.append(...children);
    return created;
  }

  const kinds = {
    choice(spec) {
      const field = element("select", {}, ...spec.options.map(([value, text]) =>
        element("option", { value, textContent: text, selected: value === spec.at })));
      return {
        field,
        read: () => spec.options[field.selectedIndex][0],
        write: (value) => {
          field.selectedIndex = spec.options.findIndex(([option]) => option === value);
        },
      };
    },
    slider(spec) {
      const place = (value) => spec.options.findIndex(([option]) => option === value);
      const field = element("input", { type: "range", min: 0, max: spec.options.length - 1, step: 1 });
      const output = element("output", {});
      const write = (value) => { field.value = place(value); tell(); };
      const tell = () => {
        output.textContent = spec.options[field.value][1];
        field.setAttribute("aria-valuetext", output.textContent);
      };
      field.addEventListener("input", tell);
      write(spec.at);
      return { field, output, read: () => spec.options[field.value][0], write };
    },
    number(spec) {
      const field = element("input", {
        type: "number", min: spec.least, step: spec.step, value: spec.at, inputMode: "decimal",
      });
      const read = () => {
        const good = field.value !== "" && field.validity.valid;
        field.setAttribute("aria-invalid", String(!good));
        return good ? Number(field.value) : null;
      };
      return { field, read, write: (value) => { field.value = value; } };
    },
    tick(spec) {
      const field = element("input", { type: "checkbox", checked: spec.at });
      return { field, read: () => field.checked, write: (value) => { field.checked = value; } };
    },
  };

  function labelled(spec, { field, output }) {
    const text = element("span", { textContent: spec.label });
    return element("label", { className: `play-control play-${spec.kind}` }, text,
      ...(output ? [output] : []), field);
  }

  /* Numbers as tools/sitelab/figures/quantities.py says them. */
  const three = (number) => number.toPrecision(3);
  function scaled(number, units, power) {
    if (!(number > 0)) return `0 ${units[-power]}`;
    let index = 0;
    let value = number * 1000 ** -power;
    while (value >= 999.5 && index + 1 < units.length) {
      value /= 1000;
      index += 1;
    }
    const text = value >= 999.5 ? value.toFixed(0) : value >= 1 ? three(value) : value.toFixed(2);
    return `${text} ${units[index]}`;
  }

  window.figures = {
    element,
    size: (bytes) => scaled(bytes, ["B", "kB", "MB", "GB", "TB", "PB"], 0),
    time: (seconds) => scaled(seconds, ["ns", "µs", "ms", "s"], -3),
    percent: (share) => `${(100 * share).toFixed(1)} %`,
    answer: (figure, key, text) => {
      figure.querySelector(`[data-answer="${key}"]`).textContent = text;
    },

    /* Give a figure its controls. `draw(figure, values, data)` is called when one is turned;
     * `turned(name, values, data)` may answer with values that follow from it. Where a field holds
     * no number that fits, the picture stays as it is. */
    play(name, draw, turned = () => ({})) {
      const figure = document.querySelector(`figure[data-figure="${name}"]`);
      const data = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
      const controls = new Map(data.controls.map((spec) => [spec.name, kinds[spec.kind](spec)]));
      const values = () =>
        Object.fromEntries([...controls].map(([key, { read }]) => [key, read()]));
      const changed = (key) => {
        const follows = turned(key, values(), data);
        for (const [key, value] of Object.entries(follows)) controls.get(key).write(value);
        const now = values();
        if (!Object.values(now).includes(null)) draw(figure, now, data);
      };
      const panel = element("div", { className: "play-controls" },
        ...data.controls.map((spec) => labelled(spec, controls.get(spec.name))));
      panel.setAttribute("role", "group");
      panel.setAttribute("aria-label", data.words.controls);
      for (const [key, { field }] of controls) {
        field.name = key;
        field.addEventListener("input", () => changed(key));
      }
      // Below what changes, so that a telephone shows both.
      figure.querySelector(".play-below, figcaption").before(panel);
      figure.dataset.plays = "";
    },
  };
})();

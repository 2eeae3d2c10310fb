/* What every figure to play with has: its data, read from the page, and the controls they ask for.
 * A figure's own script draws; tools/sitelab/figures has drawn its first picture. */
(function () {
  "use strict";

  function element(name, properties, ...children) {
    const created = Object.assign(document.createElement(name), properties);
    created.append(...children);
    return created;
  }

  /* What an address says of a control: a value that it may have, or undefined. */
  function parse({ kind, options, least, most = Infinity, step, pattern }, text) {
    if (kind === "text") return !text || new RegExp(`^(${pattern})$`).test(text) ? text : undefined;
    if (kind === "tick") return { true: true, false: false }[text];
    if (options) return (options.find(([value]) => String(value) === text) || [])[0];
    const number = /^\d+(\.\d+)?(e-?\d+)?$/.test(text) ? Number(text) : NaN;
    return number >= least && number <= most && (step === "any" || number % step === 0) ? number : undefined;
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
        type: "number", min: spec.least, max: spec.most ?? "", step: spec.step, value: spec.at,
        inputMode: "decimal",
      });
      const read = () => {
        const good = field.value !== "" && field.validity.valid;
        field.setAttribute("aria-invalid", String(!good));
        return good ? Number(field.value) : null;
      };
      return { field, read, write: (value) => { field.value = value; } };
    },
    text(spec) {
      const field = element("input", { type: "text", pattern: spec.pattern, value: spec.at });
      const read = () => {
        field.setAttribute("aria-invalid", String(!field.validity.valid));
        return field.validity.valid ? field.value : null;
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

  /* Controls, of which those with the same `fold` are in one `details`. */
  function fold(labelled) {
    const folds = new Map();
    return labelled.flatMap(([spec, label]) => {
      if (!spec.fold) return [label];
      const known = folds.get(spec.fold);
      const details = known || element("details", { className: "play-fold" },
        element("summary", { textContent: spec.fold }), element("div", { className: "play-folded" }));
      details.lastChild.append(label);
      folds.set(spec.fold, details);
      return known ? [] : [details];
    });
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

    /* A slider over the moments of a figure and a button that plays them, below its picture.
     * `show(moment, moves)` draws a moment and returns what it says; `moves` if the moment before
     * is on the screen and may turn into it. Returns what sets the last moment and shows one. */
    player(figure, words, show) {
      const still = matchMedia("(prefers-reduced-motion: reduce)");
      const button = element("button", { type: "button" });
      const slider = element("input", { type: "range", min: 0 });
      const text = figure.querySelector(".play-moment");
      let [at, timer] = [0, 0];
      const stop = () => {
        timer = clearInterval(timer);
        button.textContent = `▶ ${words.play}`;
        text.setAttribute("role", "status");
      };
      const go = (moment) => {
        const moves = moment === at + 1 && !still.matches;
        slider.value = at = moment;
        text.textContent = show(at, moves);
        slider.setAttribute("aria-valuetext", text.textContent);
      };
      button.addEventListener("click", () => {
        if (timer) { stop(); return; }
        if (at === Number(slider.max)) go(0);
        button.textContent = `❚❚ ${words.pause}`;
        text.removeAttribute("role"); // who listens is not told every moment
        timer = setInterval(() => {
          go(at + 1);
          if (at === Number(slider.max)) stop();
        }, still.matches ? 1500 : Math.max(300, Math.min(1100, 15000 / slider.max)));
      });
      slider.setAttribute("aria-label", words["which-moment"]);
      slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
      text.before(element("div", { className: "play-player" }, button, slider));
      return (last, moment) => {
        stop();
        slider.max = last;
        at = moment;
        go(moment);
      };
    },

    /* Give a figure its controls. `draw(figure, values, data)` is called when one is turned;
     * `turned(name, values, data)` may answer with values that follow from it. Where a field holds
     * no number that fits, the picture stays as it is. The settings are kept in the address, and a
     * page whose address has some begins with them. With `atOnce`, it is drawn at the start too. */
    play(name, draw, turned = () => ({}), atOnce = false) {
      const figure = document.querySelector(`figure[data-figure="${name}"]`);
      const data = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
      const { words } = data;
      const specs = new Map(data.controls.map((spec) => [spec.name, spec]));
      const controls = new Map(data.controls.map((spec) => [spec.name, kinds[spec.kind](spec)]));
      const note = element("p", { className: "play-note", hidden: true });
      note.setAttribute("role", "status");
      const say = (...sentences) => {
        note.textContent = sentences.join(" ");
        note.hidden = !note.textContent;
      };
      const values = () =>
        Object.fromEntries([...controls].map(([key, { read }]) => [key, read()]));
      const write = (all) => {
        for (const [key, value] of Object.entries(all)) controls.get(key).write(value);
      };
      const wrong = ({ label, least, most, pattern }) =>
        words[pattern ? "not-text" : most ? "not-between" : "not-whole"]
          .replace("{label}", label).replace("{least}", least).replace("{most}", most);
      const address = (now) => {
        const query = new URLSearchParams({ figure: name });
        for (const [key, value] of Object.entries(now)) {
          if (value !== specs.get(key).at) query.set(key, value);
        }
        return `${location.pathname}?${query}#figure-${name}`;
      };
      const update = (now, ...sentences) => {
        const empty = Object.keys(now).filter((key) => now[key] === null);
        say(...sentences, ...empty.map((key) => wrong(specs.get(key))));
        figure.toggleAttribute("data-old", empty.length > 0); // what is drawn is not of these settings
        if (!empty.length) draw(figure, now, data);
        return !empty.length;
      };
      let later = 0;
      const change = (all) => {
        write(all);
        const now = values();
        if (!update(now)) return;
        clearTimeout(later); // a slider says more than a browser writes down
        later = setTimeout(() => history.replaceState(history.state, "", address(now)), 300);
      };
      const begin = () => {
        const query = new URLSearchParams(location.search);
        if (query.get("figure") !== name) {
          if (atOnce) update(values());
          return;
        }
        const refused = [];
        const asked = [...query].filter(([key]) => key !== "figure").flatMap(([key, text]) => {
          const value = specs.has(key) ? parse(specs.get(key), text) : undefined;
          if (value !== undefined) return [[key, value]];
          refused.push(words["not-in-address"].replace("{setting}", `${key}=${text}`.slice(0, 60)));
          return [];
        });
        for (const [key, value] of asked) {
          write({ [key]: value });
          write(turned(key, values(), data));
        }
        write(Object.fromEntries(asked));
        update(values(), ...refused);
      };
      const panel = element("div", { className: "play-controls" },
        ...fold(data.controls.map((spec) => [spec, labelled(spec, controls.get(spec.name))])));
      panel.setAttribute("role", "group");
      panel.setAttribute("aria-label", words.controls);
      for (const [key, { field }] of controls) {
        field.name = key;
        field.addEventListener("input", () => change(turned(key, values(), data)));
      }
      const share = element("button", { type: "button", textContent: words.share });
      share.addEventListener("click", async () => {
        const now = values();
        if (Object.values(now).includes(null)) { update(now); return; }
        history.replaceState(history.state, "", address(now));
        const copied = navigator.clipboard?.writeText(location.href);
        const done = copied && await copied.then(() => true, () => false);
        say(words[done ? "shared" : "in-address"]);
      });
      panel.append(element("p", { className: "play-share" }, share));
      // Below what changes, so that a telephone shows both; the page has kept the room.
      figure.querySelector(".play-place").replaceWith(panel, note);
      figure.dataset.plays = "";
      begin();
      return { change, panel };
    },
  };
})();

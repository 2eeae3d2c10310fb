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
      const read = () => (field.value !== "" && field.validity.valid ? Number(field.value) : null);
      return { field, read, write: (value) => { field.value = value; } };
    },
    text(spec) {
      const field = element("input", { type: "text", pattern: spec.pattern, value: spec.at });
      const read = () => (field.validity.valid ? field.value : null);
      return { field, read, write: (value) => { field.value = value; } };
    },
    tick(spec) {
      const field = element("input", { type: "checkbox", checked: spec.at });
      return { field, read: () => field.checked, write: (value) => { field.checked = value; } };
    },
  };

  /* A control, its label, and the place for a sentence about its value. */
  function labelled(figure, spec) {
    const control = kinds[spec.kind](spec);
    const { field, output } = control;
    const said = element("span", { className: "play-said", hidden: true,
      id: `${figure.id}-${spec.name}` });
    said.setAttribute("role", "status");
    field.name = spec.name;
    field.setAttribute("aria-label", spec.label);
    const label = element("label", { className: `play-control play-${spec.kind}${
      spec.isLong ? " play-long" : ""}` },
    element("span", { textContent: spec.label }), ...(output ? [output] : []), field, said);
    return { ...control, label, said };
  }

  /* A sentence beside its field, which is invalid unless it is a note: the first of those that are
   * about the field. One of several fields is put at the one that was turned. */
  function tell(controls, sentences, turned) {
    const placed = sentences.map(([fields, text, isNote]) => {
      const names = fields.split(" ");
      return { name: names.includes(turned) ? turned : names[0], text, isNote };
    });
    for (const [key, { field, said }] of controls) {
      const own = placed.find(({ name }) => name === key);
      if (!own && said.hidden) continue;
      said.textContent = own ? own.text : "";
      said.hidden = !own;
      field.setAttribute("aria-invalid", String(Boolean(own && !own.isNote)));
      if (!own) { field.removeAttribute("aria-describedby"); continue; }
      field.setAttribute("aria-describedby", said.id);
      const folded = said.closest("details");
      if (folded) folded.open = true;
    }
  }

  /* What each answer said before the control was turned, next to what it says now; not where it
   * would only make a sentence longer. */
  function compare(figure, word, draw) {
    const answers = [...figure.querySelectorAll("[data-answer]:not([data-quiet])")].map((answer) =>
      [answer, answer.textContent]);
    figure.querySelectorAll(".play-was").forEach((was) => was.remove());
    draw();
    for (const [answer, before] of answers) {
      if (answer.textContent === before || before.length > 24 || before === "–") continue;
      answer.after(element("small", { className: "play-was",
        textContent: ` ${word.replace("{before}", before)}` }));
    }
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

  /* Numbers as tools/sitelab/figures/embed.py says them. */
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

    /* A moment of tracks on a clock: later boxes are pale, and a line, which stays in sight, goes
     * through all tracks. A box says in `data-start` when it begins. */
    markMoment(tracks, now, end) {
      tracks.style.setProperty("--now", `${100 * now / end}%`);
      tracks.toggleAttribute("data-moment", now < end);
      for (const box of tracks.querySelectorAll(".play-box")) {
        box.toggleAttribute("data-later", Number(box.dataset.start) > now);
      }
      const scroll = tracks.closest(".play-scroll");
      const hidden = scroll.scrollWidth - scroll.clientWidth;
      if (hidden > 0) scroll.scrollLeft = now < end ? scroll.scrollWidth * now / end - scroll.clientWidth / 2 : 0;
    },

    /* A slider over the moments of a figure, a button that plays them and two that go to the next
     * and the last one, below its picture.
     * `show(moment, moves)` draws a moment and returns what it says; `moves` if the moment before
     * is on the screen and may turn into it. Returns what sets the last moment and shows one. */
    player(figure, words, show) {
      const still = matchMedia("(prefers-reduced-motion: reduce)");
      const [sign, word] = [element("span", {}), element("span", { className: "play-word" })];
      sign.setAttribute("aria-hidden", "true");
      const button = element("button", { type: "button" }, sign, word);
      const name = (isPlaying) => {
        sign.textContent = isPlaying ? "❚❚" : "▶";
        word.textContent = ` ${words[isPlaying ? "pause" : "play"]}`;
      };
      const slider = element("input", { type: "range", min: 0 });
      const text = figure.querySelector(".play-moment");
      let [at, timer] = [0, 0];
      let isMoved = false; // a figure may begin at a telling moment: it is played from the first
      const stop = () => {
        timer = clearInterval(timer);
        name(false);
        text.setAttribute("role", "status");
      };
      const go = (moment) => {
        const moves = moment === at + 1 && !still.matches;
        figure.querySelectorAll(".play-was").forEach((was) => was.remove());
        slider.value = at = moment;
        isMoved = true;
        text.textContent = show(at, moves);
        slider.setAttribute("aria-valuetext", text.textContent);
      };
      button.addEventListener("click", () => {
        if (timer) { stop(); return; }
        if (at === Number(slider.max) || !isMoved) go(0);
        name(true);
        text.removeAttribute("role"); // who listens is not told every moment
        timer = setInterval(() => {
          go(at + 1);
          if (at === Number(slider.max)) stop();
        }, still.matches ? 1500 : Math.max(300, Math.min(1100, 15000 / slider.max)));
      });
      slider.setAttribute("aria-label", words["which-moment"]);
      slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
      const steps = [["‹", "step-back", -1], ["›", "step-on", 1]].map(([textContent, key, by]) => {
        const step = element("button", { type: "button", className: "play-by-one", textContent });
        step.setAttribute("aria-label", words[key]);
        step.addEventListener("click", () => {
          stop();
          go(Math.max(0, Math.min(Number(slider.max), at + by)));
        });
        return step;
      });
      text.before(element("div", { className: "play-player" }, button, slider, ...steps));
      return (last, moment) => {
        stop();
        slider.max = last;
        at = moment;
        go(moment);
        isMoved = false;
      };
    },

    /* Give a figure its controls. `draw(figure, values, data)` is called when one is turned. It may
     * return sentences about fields, [fields, sentence, isNote]: unless each of them is a note, it
     * has drawn nothing, and the picture stays as it is, struck. `turned(name, values, data)` may
     * answer with values that follow from it. The settings are kept in the address, and a page
     * whose address has some begins with them. With `atOnce`, it is drawn at the start too. */
    play(name, draw, turned = () => ({}), atOnce = false) {
      const figure = document.querySelector(`figure[data-figure="${name}"]`);
      const data = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
      const { words } = data;
      const specs = new Map(data.controls.map((spec) => [spec.name, spec]));
      const controls = new Map(data.controls.map((spec) => [spec.name, labelled(figure, spec)]));
      const note = element("p", { className: "play-note", hidden: true });
      note.setAttribute("role", "status");
      const say = (text) => {
        note.textContent = text;
        note.hidden = !text;
      };
      const values = () =>
        Object.fromEntries([...controls].map(([key, { read }]) => [key, read()]));
      const write = (all) => {
        for (const [key, value] of Object.entries(all)) controls.get(key).write(value);
      };
      const wrong = ({ label, least, most, pattern }) =>
        words[pattern ? "not-text" : most ? "not-between" : "not-whole"]
          .replace("{label}", label).replace("{least}", least).replace("{most}", most);
      /* The settings that a page must be given so that it begins with these: a control that is set
       * may turn others, so one that has its first value may have to be named too. */
      const named = (now) => {
        const start = Object.fromEntries([...specs].map(([key, { at }]) => [key, at]));
        const keys = Object.keys(now);
        let asked = keys.filter((key) => now[key] !== start[key]);
        for (;;) {
          const all = { ...start };
          for (const key of asked) {
            all[key] = now[key];
            Object.assign(all, turned(key, { ...all }, data));
          }
          const missing = keys.filter((key) => all[key] !== now[key] && !asked.includes(key));
          if (!missing.length) return asked;
          asked = keys.filter((key) => asked.includes(key) || missing.includes(key));
        }
      };
      const address = (now) => {
        const query = new URLSearchParams({ figure: name });
        for (const key of named(now)) query.set(key, now[key]);
        return `${location.pathname}?${query}#figure-${name}`;
      };
      const update = (now, key, left = []) => {
        const empty = Object.keys(now).filter((each) => now[each] === null)
          .map((each) => [each, wrong(specs.get(each))]);
        const sentences = empty.length ? empty : draw(figure, now, data) || [];
        tell(controls, [...sentences, ...left], key);
        // What is drawn is not of these settings.
        figure.toggleAttribute("data-old", sentences.some(([,, isNote]) => !isNote));
        figure.dispatchEvent(new Event("drawn", { bubbles: true }));
        return !empty.length;
      };
      let later = 0;
      const change = (all, key) => {
        write(all);
        say("");
        const now = values();
        let isWhole = false;
        compare(figure, words.was, () => { isWhole = update(now, key); });
        if (!isWhole) return;
        clearTimeout(later); // a slider says more than a browser writes down
        later = setTimeout(() => history.replaceState(history.state, "", address(now)), 300);
      };
      const begin = () => {
        const query = new URLSearchParams(location.search);
        if (query.get("figure") !== name) {
          if (atOnce) update(values());
          return;
        }
        const [asked, left, unknown] = [[], [], []];
        for (const [key, text] of query) {
          const value = specs.has(key) ? parse(specs.get(key), text) : undefined;
          const sentence = words["not-in-address"].replace("{setting}", `${key}=${text}`.slice(0, 60));
          if (value !== undefined) asked.push([key, value]);
          else if (specs.has(key)) left.push([key, sentence, true]);
          else if (key !== "figure") unknown.push(sentence);
        }
        for (const [key, value] of asked) {
          write({ [key]: value });
          write(turned(key, values(), data));
        }
        write(Object.fromEntries(asked));
        update(values(), undefined, left);
        say(unknown.join(" "));
      };
      const panel = element("div", { className: "play-controls" },
        ...fold(data.controls.map((spec) => [spec, controls.get(spec.name).label])));
      panel.setAttribute("role", "group");
      panel.setAttribute("aria-label", words.controls);
      for (const [key, { field }] of controls) {
        field.addEventListener("input", () => change(turned(key, values(), data), key));
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
      panel.append(element("p", { className: "play-share" }, share, note));
      figure.querySelector(".play-place").replaceWith(panel);
      figure.dataset.plays = "";
      window.addEventListener("beforeprint", () => { // paper has the folded settings that were used
        const asked = named(values());
        for (const details of panel.querySelectorAll(".play-fold")) {
          const isUsed = details.open || asked.some((key) => details.contains(controls.get(key).field));
          details.toggleAttribute("data-unused", !isUsed);
        }
      });
      begin();
      return { change, panel };
    },
  };

  /* The button that leads to the top of the page is not shown over a figure. */
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) seen[isIntersecting ? "add" : "delete"](target);
    document.body.toggleAttribute("data-plays", seen.size);
  }, { rootMargin: "0px 0px -80% 0px" });
  document.querySelectorAll("figure.play").forEach((figure) => watch.observe(figure));
})();

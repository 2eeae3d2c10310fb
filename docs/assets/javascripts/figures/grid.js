/* The process grid, as shardlab.grid.layout numbers it: a rank is a number in mixed radix, whose
 * digits are the places on the axes, the fastest first. Pointing at a rank lights its groups. */
(function () {
  "use strict";

  const { element, play } = window.figures;
  const DENSE = ["tensor", "context", "data", "pipeline"];

  /* The sizes of the axes, from the fastest to the slowest: [token, size, stride]. */
  function digits(sizes, order) {
    let stride = 1;
    return order.split("-").map((token) => {
      const digit = [token, sizes[token], stride];
      stride *= sizes[token];
      return digit;
    });
  }

  /* The ranks that differ from this one in some digits only. */
  function groupOf(rank, tokens, layout) {
    let group = [rank];
    for (const [token, size, stride] of layout) {
      if (!tokens.includes(token)) continue;
      const places = Array.from({ length: size }, (_, place) => place);
      group = places.flatMap((place) => group.map((member) =>
        member + (place - Math.floor(member / stride) % size) * stride));
    }
    return group;
  }

  /* The layouts of the dense layers and of the experts, or why there is none: see for_experts. */
  function layouts(at) {
    const { tensor: tp, context: cp, data: dp, pipeline: pp, expert: ep } = at;
    const dense = digits({ tp, cp, dp, pp, ep: 1 }, at.order);
    const ranks = tp * cp * dp * pp;
    if (ep === 1) return { ranks, dense, experts: dense };
    const copies = dp * cp / ep;
    if (copies % 1) return { ranks, refused: "not-experts" };
    const experts = digits({ tp, cp: 1, dp: copies, pp, ep }, at.order);
    const [, , stride] = dense.find(([token]) => token === "pp");
    const mixed = pp > 1 && stride * pp !== ranks && copies !== dp;
    const same = pp === 1 || stride === experts.find(([token]) => token === "pp")[2];
    return mixed || !same ? { ranks, refused: "not-last" } : { ranks, dense, experts };
  }

  function groups(at, rows) {
    const { ranks, dense, experts, refused } = layouts(at);
    if (refused) return refused;
    return rows.map(([name, tokens, ofExperts]) => {
      const layout = ofExperts ? experts : dense;
      const of = Array.from({ length: ranks }, (_, rank) => groupOf(rank, tokens, layout));
      return { name, of, all: of.filter(([first], rank) => first === rank) };
    });
  }

  const inHost = (group, host) => Math.floor(group[0] / host) === Math.floor(group.at(-1) / host);

  function draw(figure, at, data) {
    const { words } = data;
    const { ranks, dense, refused } = layouts(at);
    const warning = figure.querySelector(".play-warning");
    const problem = ranks > data.most ? "too-many" : refused;
    warning.hidden = !problem;
    warning.textContent = problem ? words[problem].replace("{ranks}", ranks)
      .replace("{most}", data.most).replace("{expert}", at.expert)
      .replace("{copies}", at.data * at.context) : "";
    for (const part of figure.querySelectorAll(".grid-hosts, .grid-hint, .play-below")) {
      part.hidden = Boolean(problem);
    }
    if (problem) return;
    const rows = groups(at, data.rows);
    const cut = DENSE.filter((name) => at[name] > 1);
    const place = (rank, name) => {
      const [, size, stride] = dense.find(([token]) => token === data.tokens[name]);
      return Math.floor(rank / stride) % size;
    };
    const buttons = Array.from({ length: ranks }, (_, rank) => {
      const button = element("button", { type: "button", className: "grid-rank" },
        element("b", { textContent: rank }),
        element("small", { textContent: cut.map((name) => name[0] + place(rank, name)).join(" ") }));
      button.setAttribute("aria-label", `rank ${rank}: ${
        cut.map((name) => `${words[`row-${name}`]} ${place(rank, name)}`).join(", ")}`);
      return button;
    });

    /* Light the groups of a rank; or, with the name of a row, all groups of that row. */
    function light(chosen, row) {
      const shown = rows.find(({ name }) => name === row);
      buttons.forEach((button, rank) => {
        const [peer] = rows.filter(({ name, of }) => DENSE.includes(name) && of[chosen].includes(rank));
        button.toggleAttribute("data-chosen", !shown && rank === chosen);
        button.dataset.axis = shown ? "group" : rank !== chosen && peer ? peer.name : "";
        const [{ of: experts }] = rows.filter(({ name }) => name === "experts");
        button.toggleAttribute("data-expert", !shown && rank !== chosen &&
          experts[chosen].includes(rank));
        const number = shown && shown.all.findIndex((group) => group.includes(rank));
        button.style.setProperty("--hue", shown ? Math.round(137.5 * number) % 360 : 0);
        button.tabIndex = rank === chosen ? 0 : -1;
      });
      figure.querySelector("[data-rank]").textContent = chosen;
      for (const { name, of, all } of rows) {
        const cells = figure.querySelector(`[data-row="${name}"]`);
        cells.toggleAttribute("data-alone", of[chosen].length === 1);
        cells.querySelector(".grid-group").textContent = `[${of[chosen].join(", ")}]`;
        cells.querySelector(".grid-inside").textContent = of[chosen].length === 1 ? "–" :
          words.inside.replace("{count}", all.length)
            .replace("{inside}", all.filter((group) => inHost(group, at.host)).length);
        cells.querySelector("button").setAttribute("aria-pressed", String(name === row));
      }
    }

    let kept = Math.min(figure.chosen ?? data.rank, ranks - 1);
    let row = "";
    const keep = (rank) => { figure.chosen = kept = rank; row = ""; light(kept); };
    buttons.forEach((button, rank) => {
      button.addEventListener("pointerenter", () => light(rank, row));
      button.addEventListener("pointerleave", () => light(kept, row));
      button.addEventListener("focus", () => keep(rank));
      button.addEventListener("click", () => keep(rank));
      button.addEventListener("keydown", (event) => {
        const to = { ArrowRight: rank + 1, ArrowLeft: rank - 1, Home: 0, End: ranks - 1,
          ArrowDown: rank + at.host, ArrowUp: rank - at.host }[event.key];
        if (!buttons[to]) return;
        event.preventDefault();
        buttons[to].focus();
      });
    });
    const hosts = Array.from({ length: Math.ceil(ranks / at.host) }, (_, host) =>
      element("div", { className: "grid-host" },
        element("span", { className: "grid-name", textContent: `${words.host} ${host}` }),
        element("div", { className: "grid-ranks" },
          ...buttons.slice(host * at.host, (host + 1) * at.host))));
    figure.querySelector(".grid-hosts").replaceChildren(...hosts);
    for (const { name } of rows) {
      const label = figure.querySelector(`[data-row="${name}"] .grid-axis`);
      const button = element("button", { type: "button", className: "grid-axis",
        textContent: label.textContent });
      button.addEventListener("click", () => { row = row === name ? "" : name; light(kept, row); });
      label.replaceWith(button);
    }
    light(kept);
  }

  window.figures.gridGroups = groups;
  play("grid", draw, undefined, true);
})();

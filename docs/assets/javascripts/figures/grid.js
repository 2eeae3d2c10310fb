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

  const LISTED = 8; // ranks of a group; of a larger one the ends

  function format(group) {
    const ends = [...group.slice(0, LISTED / 2), "…", ...group.slice(-LISTED / 4)];
    return `[${(group.length > LISTED ? ends : group).join(", ")}]`;
  }

  function draw(figure, at, data) {
    const { words } = data;
    const fill = (key, values) => words[key].replace(/{(\w+)}/g, (_, name) => values[name]);
    const { ranks, dense, refused } = layouts(at);
    const fields = { "not-experts": "expert data context", "not-last": "order expert pipeline context data" };
    if (refused) {
      return [[fields[refused], fill(refused, { expert: at.expert, copies: at.data * at.context })]];
    }
    const rows = groups(at, data.rows);
    const cut = DENSE.filter((name) => at[name] > 1);
    const place = (rank, name) => {
      const [, size, stride] = dense.find(([token]) => token === data.tokens[name]);
      return Math.floor(rank / stride) % size;
    };
    const places = (rank) => cut.map((name) => `${words[`row-${name}`]} ${place(rank, name)}`).join(", ");
    const drawn = Math.min(ranks, data.most);
    const buttons = Array.from({ length: drawn }, (_, rank) => {
      const button = element("button", { type: "button", className: "grid-rank" },
        element("b", { textContent: rank }),
        element("small", { textContent: cut.map((name) => name[0] + place(rank, name)).join(" ") }));
      button.setAttribute("aria-label", `rank ${rank}: ${places(rank)}`);
      return button;
    });
    const inside = (all) => all.filter((group) => inHost(group, at.host)).length;

    /* Light the groups of a rank; or, of the axis that is pressed, all groups. */
    function light(chosen) {
      const shown = rows.find(({ name }) => name === figure.row);
      const [{ of: experts }] = rows.filter(({ name }) => name === "experts");
      buttons.forEach((button, rank) => {
        const [peer] = rows.filter(({ name, of }) => DENSE.includes(name) && of[chosen].includes(rank));
        button.toggleAttribute("data-chosen", !shown && rank === chosen);
        button.dataset.axis = shown ? "group" : rank !== chosen && peer ? peer.name : "";
        button.toggleAttribute("data-expert", !shown && rank !== chosen &&
          experts[chosen].includes(rank));
        const number = shown && shown.all.findIndex((group) => group.includes(rank));
        button.style.setProperty("--hue", shown ? Math.round(137.5 * number) % 360 : 0);
        button.tabIndex = rank === chosen ? 0 : -1;
      });
      figure.querySelector("[data-rank]").textContent = chosen;
      figure.querySelector(".play-moment").textContent = shown ?
        fill("of-axis", { axis: words[`row-${shown.name}`], size: shown.of[0].length,
          count: shown.all.length, inside: inside(shown.all) }) :
        fill(cut.length ? "of-rank" : "alone", { rank: chosen, places: places(chosen) });
      for (const { name, of, all } of rows) {
        const cells = figure.querySelector(`[data-row="${name}"]`);
        const isAlone = of[chosen].length === 1;
        cells.toggleAttribute("data-alone", isAlone);
        cells.querySelector(".grid-group").textContent = format(of[chosen]);
        cells.querySelector(".grid-inside").textContent = isAlone ? "–" :
          fill("inside", { inside: inside(all), count: all.length });
        figure.querySelector(`[data-axis-name="${name}"]`)
          .setAttribute("aria-pressed", String(name === figure.row));
      }
    }

    figure.chosen = Math.min(figure.chosen ?? data.rank, drawn - 1);
    figure.light = () => light(figure.chosen);
    const keep = (rank) => {
      figure.chosen = rank;
      figure.row = "";
      figure.light();
    };
    buttons.forEach((button, rank) => {
      const point = (to) => ({ pointerType }) => { if (pointerType !== "touch") light(to()); };
      button.addEventListener("pointerenter", point(() => rank));
      button.addEventListener("pointerleave", point(() => figure.chosen));
      button.addEventListener("focus", () => keep(rank));
      button.addEventListener("click", () => keep(rank));
      button.addEventListener("keydown", (event) => {
        const to = { ArrowRight: rank + 1, ArrowLeft: rank - 1, Home: 0, End: drawn - 1,
          ArrowDown: rank + at.host, ArrowUp: rank - at.host }[event.key];
        if (!buttons[to]) return;
        event.preventDefault();
        buttons[to].focus();
      });
    });
    const hosts = Array.from({ length: Math.ceil(drawn / at.host) }, (_, host) =>
      element("div", { className: "grid-host" },
        element("span", { className: "grid-name", textContent: `${words.host} ${host}` }),
        element("div", { className: "grid-ranks" },
          ...buttons.slice(host * at.host, (host + 1) * at.host))));
    const picture = figure.querySelector(".grid-hosts");
    picture.replaceChildren(...hosts);
    picture.toggleAttribute("data-many", drawn > 16);
    figure.light();
    return ranks > drawn ? [["tensor context data pipeline", fill("too-many", { ranks, most: drawn }), true]] : [];
  }

  /* The names of the axes below the picture become buttons. */
  const figure = document.querySelector('figure[data-figure="grid"]');
  figure.querySelector(".play-moment").setAttribute("role", "status");
  for (const name of figure.querySelectorAll(".grid-axis")) {
    const button = element("button", { type: "button", className: "grid-axis" }, ...name.childNodes);
    button.dataset.axisName = name.dataset.axisName;
    button.addEventListener("click", () => {
      figure.row = figure.row === button.dataset.axisName ? "" : button.dataset.axisName;
      figure.light();
    });
    name.replaceWith(button);
  }

  window.figures.gridGroups = groups;
  play("grid", draw, undefined, true);
})();
